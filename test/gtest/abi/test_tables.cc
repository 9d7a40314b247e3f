/* SPDX-License-Identifier: BSD-3-Clause */
/* A UCX whose functions call other table entries than described is refused. */

#include <uct/abi/tables.h>

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>

/* Functions that call one entry of an object's table, like libuct's. */
template<unsigned entry>
static long md_call(long (**const *md)(void))
{
    return (*md)[entry]();
}

template<unsigned entry>
static long iface_call(void *const *iface)
{
    return ((long (**)(void))iface[sizeof(uct_iface_ops_t) / 8])[entry]();
}

template<unsigned entry>
static long ep_call(void *const *const *ep)
{
    return iface_call<entry>(*ep);
}

static long does_not_call(void*)
{
    return UCS_ERR_INVALID_PARAM;
}

typedef std::map<std::string, uct_abi_fn_t> functions;

template<typename T> static uct_abi_fn_t generic(T *function)
{
    return (uct_abi_fn_t)function;
}

/* Functions that follow test/abi-facts, with every entry moved up by
   `shift`. */
template<unsigned shift> static functions make_functions()
{
    return {{"uct_md_mem_reg_v2", generic(md_call<5 + shift>)},
            {"uct_md_mem_dereg_v2", generic(md_call<6 + shift>)},
            {"uct_md_mem_query_v2", generic(md_call<7 + shift>)},
            {"uct_md_mkey_pack_v2", generic(md_call<8 + shift>)},
            {"uct_md_detect_memory_type", generic(md_call<10 + shift>)},
            {"uct_md_mem_elem_pack", generic(md_call<11 + shift>)},
            {"uct_md_mem_elem_release", generic(md_call<12 + shift>)},
            {"uct_iface_query_v2", generic(iface_call<0 + shift>)},
            {"uct_iface_estimate_perf", generic(iface_call<1 + shift>)},
            {"uct_ep_query", generic(ep_call<3 + shift>)},
            {"uct_ep_invalidate", generic(ep_call<4 + shift>)},
            {"uct_ep_connect_to_ep_v2", generic(ep_call<5 + shift>)},
            {"uct_iface_is_reachable_v2", generic(iface_call<6 + shift>)},
            {"uct_ep_is_connected", generic(ep_call<7 + shift>)},
            {"uct_ep_get_device_ep", generic(ep_call<8 + shift>)},
            {"uct_ep_put_sgl_zcopy", generic(ep_call<9 + shift>)},
            {"uct_ep_get_sgl_zcopy", generic(ep_call<10 + shift>)},
            {"uct_ep_outstanding_purge", generic(ep_call<11 + shift>)}};
}

static uct_abi_fn_t find(void *arg, const char *name)
{
    const functions &all = *(const functions*)arg;
    auto it              = all.find(name);

    return (it == all.end()) ? NULL : it->second;
}

static std::string verify(functions all)
{
    const char *differs = uct_abi_tables_verify(uct_abi_release_find(23), find,
                                                &all);

    return (differs == NULL) ? "" : differs;
}

TEST(test_abi_tables, known_structure_passes)
{
    EXPECT_EQ("", verify(make_functions<0>()));
}

TEST(test_abi_tables, each_function_counts)
{
    functions moved = make_functions<1>();

    for (const auto &function : make_functions<0>()) {
        functions all = make_functions<0>();

        all[function.first] = moved[function.first];
        EXPECT_EQ(function.first, verify(all));

        all[function.first] = generic(does_not_call);
        EXPECT_EQ(function.first, verify(all));

        all.erase(function.first);
        EXPECT_EQ(function.first, verify(all));
    }
}


/* uct_iface_base_query_v2 of a UCX with these fields at these offsets: it
   clears the requested ones. */
template<unsigned put, unsigned get, unsigned flags>
static ucs_status_t query_v2(uct_iface_h, void *attr)
{
    uint64_t *words = (uint64_t*)attr, bit = 1;

    for (unsigned place : {put, get, flags}) {
        if ((place != 0) && (words[0] & bit)) {
            words[place] = 0;
        }
        bit <<= (place != 0);
    }

    return UCS_OK;
}

static ucs_status_t clears_all(uct_iface_h, void *attr)
{
    memset((uint64_t*)attr + 1, 0, 48);
    return UCS_OK;
}

static ucs_status_t refuses(uct_iface_h, void*)
{
    return UCS_ERR_UNSUPPORTED;
}

TEST(test_abi_tables, lists_are_offered_only_at_known_offsets)
{
    const uct_abi_release_t *with_put = uct_abi_release_find(22);
    const uct_abi_release_t *with_get = uct_abi_release_find(23);

    EXPECT_TRUE(uct_abi_tables_has_lists(with_put, query_v2<1, 0, 2>));
    EXPECT_TRUE(uct_abi_tables_has_lists(with_get, query_v2<1, 2, 3>));

    EXPECT_FALSE(uct_abi_tables_has_lists(with_put, query_v2<2, 0, 1>));
    EXPECT_FALSE(uct_abi_tables_has_lists(with_get, query_v2<1, 0, 2>));
    EXPECT_FALSE(uct_abi_tables_has_lists(with_get, query_v2<2, 1, 3>));
    EXPECT_FALSE(uct_abi_tables_has_lists(with_get, query_v2<1, 2, 4>));
    EXPECT_FALSE(uct_abi_tables_has_lists(with_get, clears_all));
    EXPECT_FALSE(uct_abi_tables_has_lists(with_get, refuses));
    EXPECT_FALSE(uct_abi_tables_has_lists(with_get, NULL));
    EXPECT_FALSE(uct_abi_tables_has_lists(uct_abi_release_find(21),
                                          query_v2<1, 0, 2>));
}
