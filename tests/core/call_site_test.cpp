// The calls that messages name.
#include "core/types/call_site.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>

namespace mytorch {
namespace {

// The writes keep compilers from making calls jumps.
volatile int behind_the_call;

[[gnu::noinline]] std::string innermost() {
  std::string text = called_from();
  behind_the_call = 1;
  return text;
}
[[gnu::noinline]] std::string calls_through_the_library(const std::function<std::string()>& call) {
  std::string text = call();
  behind_the_call = 2;
  return text;
}
[[gnu::noinline]] CallSite noted() {
  const CallSite site = CallSite::here();
  behind_the_call = 3;
  return site;
}

TEST(CallSite, NamesStaticFunctionsAndTheirOffsets) {
  const std::string text = calls_through_the_library(innermost);
  const size_t first = text.find(" (called from mytorch::(anonymous namespace)::innermost");
  EXPECT_EQ(first, 0u) << text;
  const size_t second = text.find("calls_through_the_library");
  EXPECT_NE(second, std::string::npos) << text;
  EXPECT_NE(text.find(" at 0x"), std::string::npos) << text;
  EXPECT_NE(text.find(" in core_test, from "), std::string::npos) << text;
  EXPECT_EQ(text.find("std::"), std::string::npos) << text;
}

TEST(CallSite, IsNamedLater) {
  const CallSite site = noted();
  EXPECT_TRUE(site.known());
  EXPECT_EQ(site.text().find("mytorch::(anonymous namespace)::noted"), 0u) << site.text();
}

TEST(CallSite, OfNoCallIsEmpty) {
  EXPECT_FALSE(CallSite().known());
  EXPECT_EQ(CallSite().text(), "");
  EXPECT_EQ(called_from(CallSite()), "");
}

TEST(CallSite, OfAThreadEndsWithIt) {
  std::string text;
  std::thread([&] { text = innermost(); }).join();
  EXPECT_NE(text.find("innermost"), std::string::npos) << text;
  EXPECT_EQ(text.find("libc"), std::string::npos) << text;
}

// As that of a lambda that was inlined into it.
TEST(CallSite, MayBeginInTheStandardLibrary) {
  const std::function<CallSite()> call = CallSite::here;
  const std::string text = call().text();
  EXPECT_EQ(text.find("std::"), 0u) << text;
  EXPECT_NE(text.find("MayBeginInTheStandardLibrary"), std::string::npos) << text;
}

}  // namespace
}  // namespace mytorch
