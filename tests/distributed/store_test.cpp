#include "mytorch/distributed/store.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "mytorch/error.h"

namespace mytorch::distributed {
namespace {

TcpStoreOptions serving() { return {.serve = true, .rank = 0, .timeout = Seconds(20)}; }
TcpStoreOptions joining(uint16_t port, int rank) {
  return {.port = port, .rank = rank, .timeout = Seconds(20)};
}

void exercise(Store& a, Store& b) {
  EXPECT_EQ(b.find("key"), std::nullopt);
  const std::string bytes("\0value\n\xff", 8);
  a.set("key", bytes);
  EXPECT_EQ(b.find("key"), bytes);
  EXPECT_EQ(b.get("key", Seconds(1)), bytes);
  a.set("", "");
  EXPECT_EQ(b.find(""), "");
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    a.set("late", "came");
  });
  EXPECT_EQ(b.get("late", Seconds(10)), "came");
  late.join();
  try {
    (void)b.get("never", Seconds(0.2));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'never'"), std::string::npos) << error.what();
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 100; ++k) (i % 2 == 0 ? a : b).add("count", i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(a.add("count", 0), 600);
}

TEST(MemoryStore, SharesValues) {
  const auto store = memory_store();
  exercise(*store, *store);
}

TEST(TcpStore, SharesValues) {
  TcpStore server(serving());
  TcpStore client(joining(server.port(), 1));
  exercise(server, client);
}

TEST(TcpStore, TakesLargeValues) {
  TcpStore server(serving());
  TcpStore client(joining(server.port(), 1));
  const std::string large(16 << 20, 'x');
  client.set("large", large);
  EXPECT_EQ(server.find("large")->size(), large.size());
  EXPECT_THROW(client.set("larger", std::string(18 << 20, 'x')), Error);
}

TEST(TcpStore, KnowsWhoIsLost) {
  TcpStore server(serving());
  { TcpStore polite(joining(server.port(), 2)); }
  EXPECT_TRUE(server.lost_ranks().empty());
  // A process that dies closes its connection without a farewell.
  const pid_t child = fork();
  if (child == 0) {
    TcpStore dying(joining(server.port(), 3));
    _exit(0);
  }
  std::vector<int> lost;
  for (int i = 0; i < 100 && lost.empty(); ++i) {
    lost = server.lost_ranks();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(lost, std::vector<int>{3});
}

TEST(TcpStore, WithstandsStrangers) {
  TcpStore server(serving());
  for (const std::string& noise :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(4, '\xff'),
        std::string("\x05\0\0\0hello", 9), std::string("\x0c\0\0\0\x03\0\0\0set\x01\0\0\0k", 16)}) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server.port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(::send(fd, noise.data(), noise.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(noise.size()));
    ::close(fd);
  }
  server.set("still", "here");
  EXPECT_EQ(server.find("still"), "here");
  EXPECT_EQ(server.find("k"), std::nullopt);
}

TEST(TcpStore, SaysWhereNobodyAnswers) {
  try {
    TcpStore client({.port = 1, .timeout = Seconds(0.3)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("127.0.0.1:1"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace mytorch::distributed
