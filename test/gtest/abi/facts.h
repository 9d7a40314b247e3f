/* SPDX-License-Identifier: BSD-3-Clause */
/* Read test/abi-facts/facts.txt: the real layouts of each release of UCX. */

#ifndef TEST_ABI_FACTS_H_
#define TEST_ABI_FACTS_H_

#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

class abi_facts
{
public:
    static const int ABSENT = -1;

    explicit abi_facts(const std::string &file)
    {
        std::ifstream input(file);
        std::string line;

        if (!input) {
            throw std::runtime_error("cannot read " + file);
        }

        while (std::getline(input, line)) {
            if (line.empty() || (line[0] == '#')) {
                continue;
            }

            std::istringstream words(line);
            std::string object, field, word;
            std::vector<int> values;

            words >> object >> field;
            while (words >> word) {
                values.push_back((word == "-") ? ABSENT : std::stoi(word));
            }
            if (values.size() != 11) {
                throw std::runtime_error("bad line: " + line);
            }
            m_values[{object, field}] = values;
        }
    }

    /* Return the offset (or size, field "*") in release 1.minor; ABSENT:
       missing. A name unknown to all releases is an error of the test. */
    int get(const std::string &object, const std::string &field,
            unsigned minor) const
    {
        auto it = m_values.find({object, field});

        if (it == m_values.end()) {
            throw std::runtime_error("no fact " + object + " " + field);
        }

        return it->second.at(minor - 13);
    }

    int constant(const std::string &name, unsigned minor) const
    {
        return get("constant", name, minor);
    }

    /* Return the number of fields of the structure in this release. */
    int count(const std::string &object, unsigned minor) const
    {
        int result = 0;

        for (const auto &entry : m_values) {
            result += (entry.first.first == object) &&
                      (entry.first.second != "*") &&
                      (entry.second.at(minor - 13) != ABSENT);
        }

        return result;
    }

private:
    std::map<std::pair<std::string, std::string>, std::vector<int>> m_values;
};

#endif
