// Where the ranks of a step of Slurm meet.
#include "distributed/group/slurm.h"

#include <gtest/gtest.h>

#include <map>

#include "mytorch/error.h"

namespace mytorch::distributed {
namespace {

TEST(Slurm, FindsTheFirstHostOfAList) {
  const std::map<std::string, std::string> hosts = {
      {"node", "node"},
      {"node01,node02", "node01"},
      {"node[01-03,7]", "node01"},
      {"node[7,01-03]", "node7"},
      {"node[12]", "node12"},
      {"login,node[1-2]", "login"},
      {"rack[3-4]-node[08,10]", "rack3-node08"},
      {"gpu-a[1-2].example.org,b", "gpu-a1.example.org"},
      {"10.0.0.5", "10.0.0.5"},
  };
  for (const auto& [list, host] : hosts) EXPECT_EQ(first_host(list), host) << list;
  for (const char* list : {"", ",node", "node[", "node[1-2", "node1]", "[", "a[1[2]]", "a b"}) {
    try {
      first_host(list);
      ADD_FAILURE() << list;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("set MASTER_ADDR and MASTER_PORT"),
                std::string::npos);
    }
  }
}

using Variables = std::map<std::string, std::string>;
std::optional<std::string> address_of(const Variables& variables) {
  return slurm_address([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(Slurm, DerivesTheAddressOfAStep) {
  Variables variables = {{"SLURM_JOB_ID", "1000"},
                         {"SLURM_STEP_ID", "2"},
                         {"SLURM_PROCID", "3"},
                         {"SLURM_LAUNCH_NODE_IPADDR", "10.1.2.3"}};
  EXPECT_EQ(address_of(variables), "10.1.2.3:23002");
  variables["SLURM_JOB_NODELIST"] = "node[04-09]";
  EXPECT_EQ(address_of(variables), "node04:23002");
  variables["SLURM_STEP_NODELIST"] = "node[07,09]";
  EXPECT_EQ(address_of(variables), "node07:23002");
  // Another step at the same time has another port; all are ports.
  variables["SLURM_STEP_ID"] = "3";
  EXPECT_EQ(address_of(variables), "node07:23003");
  variables["SLURM_JOB_ID"] = "4294967295";
  const std::string address = address_of(variables).value();
  const int port = std::stoi(address.substr(address.find(':') + 1));
  EXPECT_TRUE(port >= 12000 && port < 32000) << port;
}

TEST(Slurm, HasNoAddressOutsideOfAStep) {
  const Variables variables = {{"SLURM_JOB_ID", "1000"},
                               {"SLURM_STEP_ID", "2"},
                               {"SLURM_PROCID", "3"},
                               {"SLURM_JOB_NODELIST", "node[04-09]"}};
  for (const auto& [name, value] : variables) {
    Variables fewer = variables;
    fewer.erase(name);
    EXPECT_EQ(address_of(fewer), std::nullopt) << name;
  }
  Variables wrong = variables;
  wrong["SLURM_JOB_ID"] = "many";
  EXPECT_THROW(address_of(wrong), Error);
}

}  // namespace
}  // namespace mytorch::distributed
