/* SPDX-License-Identifier: BSD-3-Clause */
/* The MULTIPATH variables: valid values, and messages for invalid ones. */
#include "nodes.h"

#include <cstring>


class test_config : public ::testing::Test
{
protected:
    test_config()
    {
        uct_cuda_plan_config_init(&m_config);
    }

    ucs_status_t set(const char *name, const char *value)
    {
        m_error[0] = '\0';
        return uct_cuda_plan_config_set(&m_config, name, value, m_error,
                                        sizeof(m_error));
    }

    void refused(const char *name, const char *value)
    {
        uct_cuda_plan_config_t before = m_config;

        EXPECT_EQ(UCS_ERR_INVALID_PARAM, set(name, value)) << name << value;
        EXPECT_NE(nullptr, strstr(m_error, name)) << m_error;
        EXPECT_NE(nullptr, strstr(m_error, std::string(value).substr(0, 60)
                                                   .c_str()))
                << m_error;
        EXPECT_EQ(0, memcmp(&before, &m_config, sizeof(before)))
                << name << "=" << value << " changed something";
    }

    uct_cuda_plan_config_t m_config;
    char                   m_error[256];
};


TEST_F(test_config, defaults)
{
    EXPECT_EQ(UCT_CUDA_PLAN_AUTO, m_config.enable);
    EXPECT_EQ(UCT_CUDA_PLAN_SIZE_AUTO, m_config.min_size);
    EXPECT_EQ(0u, m_config.num_paths);
    EXPECT_EQ(4u, m_config.max_gpu_paths);
    EXPECT_EQ(UCT_CUDA_PLAN_AUTO, m_config.host);
    EXPECT_EQ(0u, m_config.num_chunks);
    EXPECT_EQ(64 * MiB, m_config.staging_size);
    EXPECT_EQ(UCT_CUDA_PLAN_START_AUTO, m_config.start);
    EXPECT_STREQ("auto", m_config.tuning_file);
    EXPECT_EQ(UCS_OK,
              uct_cuda_plan_config_check(&m_config, m_error, sizeof(m_error)));
}

TEST_F(test_config, every_default_is_a_valid_value)
{
    for (const uct_cuda_plan_config_var_t *var = uct_cuda_plan_config_vars;
         var->name != NULL; ++var) {
        EXPECT_EQ(UCS_OK, set(var->name, var->dfl)) << m_error;
        EXPECT_GT(strlen(var->doc), 10u);
    }
}

TEST_F(test_config, ternary)
{
    EXPECT_EQ(UCS_OK, set("MULTIPATH", "y"));
    EXPECT_EQ(UCT_CUDA_PLAN_YES, m_config.enable);
    EXPECT_EQ(UCS_OK, set("MULTIPATH", "Off"));
    EXPECT_EQ(UCT_CUDA_PLAN_NO, m_config.enable);
    EXPECT_EQ(UCS_OK, set("MULTIPATH", "try"));
    EXPECT_EQ(UCT_CUDA_PLAN_AUTO, m_config.enable);
    refused("MULTIPATH", "maybe");
    refused("MULTIPATH", "");
    refused("MULTIPATH_HOST", "yy");
}

TEST_F(test_config, sizes)
{
    EXPECT_EQ(UCS_OK, set("MULTIPATH_MIN_SIZE", "512k"));
    EXPECT_EQ(512 * KiB, m_config.min_size);
    EXPECT_EQ(UCS_OK, set("MULTIPATH_MIN_SIZE", "1.5MB"));
    EXPECT_EQ(1536 * KiB, m_config.min_size);
    EXPECT_EQ(UCS_OK, set("MULTIPATH_MIN_SIZE", "12345"));
    EXPECT_EQ(12345u, m_config.min_size);
    EXPECT_EQ(UCS_OK, set("MULTIPATH_MIN_SIZE", "inf"));
    EXPECT_GT(m_config.min_size, 1ul << 60);
    EXPECT_NE(UCT_CUDA_PLAN_SIZE_AUTO, m_config.min_size);
    refused("MULTIPATH_MIN_SIZE", "-1");
    refused("MULTIPATH_MIN_SIZE", "4x");
    refused("MULTIPATH_MIN_SIZE", "4mm");
    refused("MULTIPATH_MIN_SIZE", "k");
    refused("MULTIPATH_MIN_SIZE", "1e30");
    refused("MULTIPATH_STAGING_SIZE", "auto");
    refused("MULTIPATH_STAGING_SIZE", "64k");
}

TEST_F(test_config, numbers)
{
    EXPECT_EQ(UCS_OK, set("MULTIPATH_CHUNKS", "64"));
    EXPECT_EQ(1u, m_config.num_chunks);
    EXPECT_EQ(64u, m_config.chunks[0]);
    refused("MULTIPATH_CHUNKS", "65");
    refused("MULTIPATH_CHUNKS", "0");
    refused("MULTIPATH_CHUNKS", "8,auto");
    refused("MULTIPATH_CHUNKS", "8,");
    refused("MULTIPATH_CHUNKS", "1,2,3,4,5,6,7,8,9");
    EXPECT_EQ(UCS_OK, set("MULTIPATH_CHUNKS", "auto"));
    EXPECT_EQ(0u, m_config.num_chunks);

    /* One for all, or one per path */
    EXPECT_EQ(UCS_OK, set("MULTIPATH_CHUNKS", "1, 8"));
    EXPECT_EQ(2u, m_config.num_chunks);
    EXPECT_EQ(8u, m_config.chunks[1]);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_cuda_plan_config_check(&m_config, m_error, sizeof(m_error)));
    EXPECT_NE(nullptr, strstr(m_error, "MULTIPATH_CHUNKS"));
    EXPECT_EQ(UCS_OK, set("MULTIPATH_PATHS", "direct,host"));
    EXPECT_EQ(UCS_OK,
              uct_cuda_plan_config_check(&m_config, m_error, sizeof(m_error)));
    refused("MULTIPATH_CHUNKS", "99999999999999999999");
}

TEST_F(test_config, paths)
{
    ASSERT_EQ(UCS_OK, set("MULTIPATH_PATHS", "direct, gpu2,GPU13 ,host"));
    ASSERT_EQ(4u, m_config.num_paths);
    EXPECT_TRUE(uct_cuda_end_is_none(m_config.paths[0]));
    EXPECT_TRUE(uct_cuda_end_is_device(m_config.paths[1], 2));
    EXPECT_TRUE(uct_cuda_end_is_device(m_config.paths[2], 13));
    EXPECT_TRUE(uct_cuda_end_is_host(m_config.paths[3]));

    refused("MULTIPATH_PATHS", "direct,,host");
    refused("MULTIPATH_PATHS", "direct,gpu");
    refused("MULTIPATH_PATHS", "gpu-1");
    refused("MULTIPATH_PATHS", "gpu16");
    refused("MULTIPATH_PATHS", "direct,direct");
    refused("MULTIPATH_PATHS", "gpu2,gpu2");
    refused("MULTIPATH_PATHS", "gpu1,gpu2,gpu3,gpu4,gpu5,gpu6,gpu7,gpu8,gpu9");
    refused("MULTIPATH_PATHS", "nvlink");
    refused("MULTIPATH_PATHS", "direct,");

    /* A number of paths */
    EXPECT_EQ(UCS_OK, set("MULTIPATH_PATHS", "2"));
    EXPECT_EQ(0u, m_config.num_paths);
    EXPECT_EQ(2u, m_config.max_gpu_paths);
    refused("MULTIPATH_PATHS", "0");
    refused("MULTIPATH_PATHS", "9");
    refused("MULTIPATH_PATHS", "3 ");
    refused("MULTIPATH_PATHS", "2,host");
    EXPECT_EQ(UCS_OK, set("MULTIPATH_PATHS", "auto"));
    EXPECT_EQ(0u, m_config.num_paths);
    EXPECT_EQ(4u, m_config.max_gpu_paths);
}

TEST_F(test_config, shares)
{
    ASSERT_EQ(UCS_OK, set("MULTIPATH_SHARES", "2,1,1"));
    ASSERT_EQ(3u, m_config.num_shares);
    EXPECT_DOUBLE_EQ(.5, m_config.shares[0]);
    EXPECT_DOUBLE_EQ(.25, m_config.shares[2]);

    refused("MULTIPATH_SHARES", "0.5,-0.5");
    refused("MULTIPATH_SHARES", "0,0");
    refused("MULTIPATH_SHARES", "0.5,nan");
    refused("MULTIPATH_SHARES", "0.5,inf");
    refused("MULTIPATH_SHARES", "0.5;0.5");

    /* As many as paths */
    EXPECT_EQ(UCS_OK, set("MULTIPATH_PATHS", "direct,host"));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_cuda_plan_config_check(&m_config, m_error, sizeof(m_error)));
    EXPECT_NE(nullptr, strstr(m_error, "MULTIPATH_SHARES"));
    EXPECT_EQ(UCS_OK, set("MULTIPATH_SHARES", ".9,.1"));
    EXPECT_EQ(UCS_OK,
              uct_cuda_plan_config_check(&m_config, m_error, sizeof(m_error)));
}

TEST_F(test_config, host_path_contradicts_no_host)
{
    EXPECT_EQ(UCS_OK, set("MULTIPATH_PATHS", "direct,host"));
    EXPECT_EQ(UCS_OK, set("MULTIPATH_HOST", "n"));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_cuda_plan_config_check(&m_config, m_error, sizeof(m_error)));
    EXPECT_NE(nullptr, strstr(m_error, "MULTIPATH_HOST"));
}

TEST_F(test_config, unknown_name)
{
    EXPECT_EQ(UCS_ERR_NO_ELEM, set("MULTIPATH_COLOUR", "blue"));
}

TEST_F(test_config, long_file_name)
{
    refused("MULTIPATH_TUNING_FILE", std::string(256, 'x').c_str());
    EXPECT_EQ(UCS_OK,
              set("MULTIPATH_TUNING_FILE", std::string(255, 'x').c_str()));
}
