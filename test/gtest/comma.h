/* SPDX-License-Identifier: BSD-3-Clause */
/* A program's locale with a decimal comma. */
#ifndef UCT_CUDA_TEST_COMMA_H
#define UCT_CUDA_TEST_COMMA_H

#include <clocale>
#include <cstdlib>
#include <string>


/** German numbers until the end of the scope, if the system can make them. */
class Comma
{
public:
    Comma() : m_dir(mkdtemp(m_name))
    {
        const std::string make = "localedef -i de_DE -f ISO-8859-1 " + m_dir +
                                 "/comma >/dev/null 2>&1";

        setenv("LOCPATH", m_dir.c_str(), 1);
        is_set = (system(make.c_str()) == 0) &&
                 (setlocale(LC_ALL, "comma") != NULL) &&
                 (*localeconv()->decimal_point == ',');
    }

    ~Comma()
    {
        setlocale(LC_ALL, "C");
        unsetenv("LOCPATH");
        (void)!system(("rm -r " + m_dir).c_str());
    }

    bool is_set;

private:
    char        m_name[24] = "/tmp/comma.XXXXXX";
    std::string m_dir;
};

#endif
