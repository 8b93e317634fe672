// A table of keys and values that the ranks share while they meet, and by which they tell each
// other what they were doing when something hangs.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mytorch::distributed {

using Seconds = std::chrono::duration<double>;

// All functions may be called from any thread. Values are bytes, at most 16 MiB.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Returns the value of a key, or nothing if it has none.
  virtual std::optional<std::string> find(const std::string& key) = 0;
  // Waits until the key has a value. Throws Error(kIo), naming the key, after `timeout`.
  virtual std::string get(const std::string& key, Seconds timeout) = 0;
  // Adds to the number that a key stands for, 0 at first, and returns the sum.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  // Returns the ranks that have gone without a farewell: those of processes that died.
  virtual std::vector<int> lost_ranks() = 0;
};

// A store of the threads of one process.
std::shared_ptr<Store> memory_store();

struct TcpStoreOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;   // 0 with `serve`: any free port
  bool serve = false;  // this process holds the table, for all others
  int rank = -1;       // by which lost_ranks() names this process; -1: not a rank
  Seconds timeout{60};
};
// A store that one process holds and the others reach by TCP. It serves only who presents the same
// MYTORCH_STORE_KEY, if that is set. A client retries until `timeout`, so the processes may start
// in any order. Throws Error(kIo), naming address and reason.
class TcpStore : public Store {
 public:
  explicit TcpStore(const TcpStoreOptions& options);
  ~TcpStore() override;
  uint16_t port() const;
  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> find(const std::string& key) override;
  std::string get(const std::string& key, Seconds timeout) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::vector<int> lost_ranks() override;

 private:
  struct Server;
  struct Client;
  std::unique_ptr<Server> server_;  // destroyed after the client
  std::unique_ptr<Client> client_;
};

}  // namespace mytorch::distributed
