// The SDK for engines of process groups.
#include "mytorch/backend/comm.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

namespace mytorch::testing {
namespace {

#define TEST_COMM_FUNCTION(name)                                                           \
  std::remove_pointer_t<decltype(mt_comm::name)>* const some_##name = [](auto...) -> int { \
    return MT_OK;                                                                          \
  }
TEST_COMM_FUNCTION(window_create);
TEST_COMM_FUNCTION(window_free);
TEST_COMM_FUNCTION(window_put);
TEST_COMM_FUNCTION(window_get);
TEST_COMM_FUNCTION(window_accumulate);
#undef TEST_COMM_FUNCTION

// A host of version 1.0 has made a struct that ends before the functions of windows.
TEST(CommTest, WindowsAreNotWrittenBeyondTheHostsStruct) {
  mt_comm comm{};
  comm.size = offsetof(mt_comm, window_create);
  MYTORCH_COMM_WINDOWS(&comm, some);
  EXPECT_EQ(comm.window_create, nullptr);
  EXPECT_EQ(comm.window_accumulate, nullptr);
  comm.size = sizeof(comm);
  MYTORCH_COMM_WINDOWS(&comm, some);
  EXPECT_EQ(comm.window_create, some_window_create);
  EXPECT_EQ(comm.window_free, some_window_free);
  EXPECT_EQ(comm.window_put, some_window_put);
  EXPECT_EQ(comm.window_get, some_window_get);
  EXPECT_EQ(comm.window_accumulate, some_window_accumulate);
}

TEST(CommTest, AccumulatesScaledElements) {
  float window[] = {1, 2}, data[] = {10, 20};
  sdk::accumulate({MT_FLOAT, 32, 1}, {sizeof(mt_reduction), MT_REDUCE_SUM, 0, 0.5}, window, data,
                  2);
  EXPECT_EQ(window[0], 6);
  EXPECT_EQ(window[1], 12);
  // Rounded once, from float32.
  sdk::Half half[] = {sdk::Half(1.0f)}, small[] = {sdk::Half(1.0f / 1024)};
  sdk::accumulate({MT_FLOAT, 16, 1}, {sizeof(mt_reduction), MT_REDUCE_SUM, 0, 1}, half, small, 1);
  EXPECT_EQ(static_cast<float>(half[0]), 1 + 1.0f / 1024);
}

}  // namespace
}  // namespace mytorch::testing
