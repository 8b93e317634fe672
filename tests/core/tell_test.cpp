// Lines on stderr.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "mytorch/check.h"

namespace mytorch {
namespace {

// Returns what `call` writes to stderr, one text for each write(2).
template <class Call>
std::vector<std::string> writes(Call call) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);  // keeps writes apart
  const int old = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  call();
  ::dup2(old, STDERR_FILENO);
  ::close(old);
  ::close(ends[1]);
  std::vector<std::string> found;
  std::string piece(1 << 16, '\0');
  for (;;) {
    const ssize_t size = ::recv(ends[0], piece.data(), piece.size(), 0);
    if (size <= 0) break;
    found.emplace_back(piece, 0, static_cast<size_t>(size));
  }
  ::close(ends[0]);
  return found;
}

TEST(Tell, ALongLineIsOneWrite) {
  const std::string text(1000, 'a');
  EXPECT_EQ(writes([&] { detail::tell(text); }), std::vector{"mytorch: " + text + "\n"});
  EXPECT_EQ(writes([&] { detail::warn(text); }), std::vector{"mytorch: warning: " + text + "\n"});
}

}  // namespace
}  // namespace mytorch
