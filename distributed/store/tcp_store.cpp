// One process serves the table from a thread; the others, and it itself, are clients.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "distributed/store/socket.h"
#include "distributed/store/wire.h"
#include "mytorch/distributed/store.h"

namespace mytorch::distributed {
namespace {

using Clock = std::chrono::steady_clock;

std::string store_key() {
  const char* key = std::getenv("MYTORCH_STORE_KEY");
  return key != nullptr ? key : "";
}

void set_no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

}  // namespace

// ---- the server ----

struct TcpStore::Server {
  struct Peer {
    Socket socket;
    std::string in, out;
    bool known = false;  // has presented the key
    bool left = false;   // has said farewell
    int rank = -1;
    std::string waits_for;  // a key that it waits for, while `waiting`
    bool waiting = false;
  };

  Server(const std::string& host, uint16_t wanted) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    // On all interfaces, unless the address is this machine's alone.
    const bool local = host == "127.0.0.1" || host == "localhost" || host == "::1";
    const int failed = ::getaddrinfo(local ? host.c_str() : nullptr, std::to_string(wanted).c_str(),
                                     &hints, &found);
    std::string why = failed != 0 ? ::gai_strerror(failed) : "no address";
    for (const addrinfo* a = failed == 0 ? found : nullptr; a != nullptr; a = a->ai_next) {
      Socket socket(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0));
      const int on = 1;
      if (socket.fd() >= 0) ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
      if (socket.fd() >= 0 && ::bind(socket.fd(), a->ai_addr, a->ai_addrlen) == 0 &&
          ::listen(socket.fd(), 1024) == 0) {
        listener = std::move(socket);
        break;
      }
      why = std::strerror(errno);
    }
    if (found != nullptr) ::freeaddrinfo(found);
    if (listener.fd() < 0) {
      fail(ErrorCode::kIo, "[store] cannot serve at ", host, ":", wanted, ": ", why,
           ": choose another port, or 0 for a free one");
    }
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    ::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                               : reinterpret_cast<sockaddr_in&>(address).sin_port);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
      fail(ErrorCode::kIo, "[store] cannot make a pipe: ", std::strerror(errno));
    }
    wake_read = Socket(ends[0]);
    wake_write = Socket(ends[1]);
    thread = std::thread([this] { serve(); });
  }

  ~Server() {
    const char byte = 0;
    [[maybe_unused]] const auto written = ::write(wake_write.fd(), &byte, 1);
    thread.join();
  }

  void serve() {
    for (;;) {
      std::vector<pollfd> polled{{wake_read.fd(), POLLIN, 0}, {listener.fd(), POLLIN, 0}};
      for (const auto& peer : peers) {
        const bool writes = !peer->out.empty();
        polled.push_back(
            {peer->socket.fd(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
      }
      if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
      if (polled[0].revents != 0) return;
      const size_t count = peers.size();  // those that were polled
      std::vector<size_t> gone;
      for (size_t i = 0; i < count; ++i) {
        const short events = polled[i + 2].revents;
        bool fine = true;
        if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) fine = receive(*peers[i]);
        if (fine && !peers[i]->out.empty()) fine = flush(*peers[i]);
        if (!fine) gone.push_back(i);
      }
      for (size_t i = gone.size(); i-- > 0;) {
        Peer& peer = *peers[gone[i]];
        if (peer.rank >= 0 && !peer.left) lost.insert(peer.rank);
        peers.erase(peers.begin() + static_cast<std::ptrdiff_t>(gone[i]));
      }
      if ((polled[1].revents & POLLIN) != 0) accept_one();
    }
  }

  void accept_one() {
    Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.fd() < 0) return;
    set_no_delay(socket.fd());
    peers.push_back(std::make_unique<Peer>());
    peers.back()->socket = std::move(socket);
  }

  // Reads a chunk of what has come and answers complete requests. Returns false if the peer is
  // gone. A peer that sends without pause waits for its next turn, and at most a message and a
  // chunk of it are kept.
  bool receive(Peer& peer) {
    char chunk[65536];
    ssize_t n = 0;
    do {
      n = ::recv(peer.socket.fd(), chunk, sizeof(chunk), 0);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    peer.in.append(chunk, static_cast<size_t>(n));
    return answer_complete(peer);
  }

  // Answers the requests that have come whole. Returns false for one that no client makes.
  bool answer_complete(Peer& peer) {
    while (peer.in.size() >= 4) {
      const uint32_t size = wire::length_at(peer.in.data());
      if (size > wire::kMaxMessage) return false;
      if (peer.in.size() - 4 < size) break;
      const std::string request = peer.in.substr(4, size);
      peer.in.erase(0, 4 + static_cast<size_t>(size));
      if (!answer(peer, request)) return false;
    }
    return true;
  }

  bool flush(Peer& peer) {
    while (!peer.out.empty()) {
      const ssize_t n = ::send(peer.socket.fd(), peer.out.data(), peer.out.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
      peer.out.erase(0, static_cast<size_t>(n));
    }
    return true;
  }

  static void reply(Peer& peer, const std::string& message) { wire::put(&peer.out, message); }

  // Returns false for a request that no client makes; the peer is then dropped.
  bool answer(Peer& peer, const std::string& request) {
    std::string_view rest = request;
    std::string kind, key, value;
    if (!wire::take(&rest, &kind) || !wire::take(&rest, &key) || !wire::take(&rest, &value)) {
      return false;
    }
    if (kind == "hello") {
      if (key != store_key()) return false;
      peer.known = true;
      peer.rank = std::atoi(value.c_str());
      if (peer.rank >= 0) lost.erase(peer.rank);
      reply(peer, "+");
      return true;
    }
    if (!peer.known) return false;
    if (kind == "set") {
      values[key] = value;
      for (const auto& other : peers) {
        if (!other->waiting || other->waits_for != key) continue;
        other->waiting = false;
        reply(*other, "+" + value);
        (void)flush(*other);
      }
      reply(peer, "+");
    } else if (kind == "find" || kind == "get") {
      const auto found = values.find(key);
      if (found != values.end()) {
        reply(peer, "+" + found->second);
      } else if (kind == "find") {
        reply(peer, "-");
      } else {
        peer.waiting = true;
        peer.waits_for = key;
      }
    } else if (kind == "add") {
      reply(peer, "+" + std::to_string(numbers[key] += std::atoll(value.c_str())));
    } else if (kind == "lost") {
      std::string all = "+";
      for (const int rank : lost) absl::StrAppend(&all, rank, " ");
      reply(peer, all);
    } else if (kind == "bye") {
      peer.left = true;
      reply(peer, "+");
    } else {
      return false;
    }
    return true;
  }

  uint16_t port = 0;
  Socket listener, wake_read, wake_write;
  std::vector<std::unique_ptr<Peer>> peers;
  std::map<std::string, std::string> values;
  std::map<std::string, int64_t> numbers;
  std::set<int> lost;
  std::thread thread;  // last: it uses the members above
};

// ---- the client ----

struct TcpStore::Client {
  std::string address;
  std::string host;
  uint16_t port = 0;
  int rank = -1;
  Socket socket;     // of all requests that are answered at once
  std::mutex mutex;  // one request at a time

  static Socket connect_once(const std::string& host, uint16_t port, std::string* why) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (failed != 0) {
      *why = ::gai_strerror(failed);
      return Socket();
    }
    Socket result;
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
      Socket socket(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0));
      if (socket.fd() >= 0 && ::connect(socket.fd(), a->ai_addr, a->ai_addrlen) == 0) {
        set_no_delay(socket.fd());
        result = std::move(socket);
        break;
      }
      *why = std::strerror(errno);
    }
    ::freeaddrinfo(found);
    return result;
  }

  // Connects and introduces itself; `as` is -1 for a connection whose end says nothing.
  Socket connect(Seconds timeout, int as) const {
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
    std::string why = "no answer";
    do {
      Socket made = connect_once(host, port, &why);
      if (made.fd() >= 0) {
        std::string reply;
        if (exchange(made, "hello", store_key(), std::to_string(as), deadline, &reply)) return made;
        why = "it hung up: is it a store with the same MYTORCH_STORE_KEY?";
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    } while (Clock::now() < deadline);
    fail(ErrorCode::kIo, "[store] cannot reach ", address, " within ", timeout.count(), " s: ", why,
         ": check that rank 0 runs there and that the port is open");
  }

  // Sends a request and reads the answer. Returns false if the connection ends or time is up.
  static bool exchange(const Socket& socket, std::string_view kind, std::string_view key,
                       std::string_view value, Clock::time_point deadline, std::string* reply) {
    std::string request, message;
    wire::put(&request, kind);
    wire::put(&request, key);
    wire::put(&request, value);
    wire::put(&message, request);
    for (size_t sent = 0; sent < message.size();) {
      const ssize_t n =
          ::send(socket.fd(), message.data() + sent, message.size() - sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    std::string in;
    while (in.size() < 4 || in.size() - 4 < wire::length_at(in.data())) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      pollfd polled{socket.fd(), POLLIN, 0};
      const int ready =
          ::poll(&polled, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30)));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return false;
      char chunk[65536];
      const ssize_t n = ::recv(socket.fd(), chunk, sizeof(chunk), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      in.append(chunk, static_cast<size_t>(n));
      if (in.size() >= 4 && wire::length_at(in.data()) > wire::kMaxMessage) return false;
    }
    *reply = in.substr(4);
    return true;
  }

  std::string ask(std::string_view kind, std::string_view key, std::string_view value) {
    const std::lock_guard<std::mutex> lock(mutex);
    std::string reply;
    if (!exchange(socket, kind, key, value, Clock::now() + std::chrono::seconds(8), &reply)) {
      socket = Socket();  // an answer that comes late must not be taken for another one
      fail(
          ErrorCode::kIo, "[store] ", address,
          " does not answer any more: the process that serves it, rank 0, has ended or is stopped");
    }
    return reply;
  }
};

TcpStore::TcpStore(const TcpStoreOptions& options) : client_(std::make_unique<Client>()) {
  uint16_t port = options.port;
  if (options.serve) {
    server_ = std::make_unique<Server>(options.host, port);
    port = server_->port;
  }
  client_->host = options.serve ? "127.0.0.1" : options.host;
  if (options.serve && options.host == "::1") client_->host = options.host;
  client_->port = port;
  client_->rank = options.rank;
  client_->address = absl::StrCat(options.host, ":", port);
  client_->socket = client_->connect(options.timeout, options.rank);
}

TcpStore::~TcpStore() {
  try {
    (void)client_->ask("bye", "", "");
  } catch (const Error&) {  // the server is gone: nobody asks any more
  }
}

uint16_t TcpStore::port() const { return client_->port; }

void TcpStore::set(const std::string& key, const std::string& value) {
  if (value.size() > wire::kMaxMessage - 1024 - key.size()) {
    fail(ErrorCode::kValue, "[store] the value of '", key, "' has ", value.size(),
         " bytes: a store takes at most 16 MiB");
  }
  (void)client_->ask("set", key, value);
}

std::optional<std::string> TcpStore::find(const std::string& key) {
  const std::string reply = client_->ask("find", key, "");
  if (reply[0] == '-') return std::nullopt;
  return reply.substr(1);
}

std::string TcpStore::get(const std::string& key, Seconds timeout) {
  // On a connection of its own, so that other threads need not wait.
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
  const Socket socket = client_->connect(timeout, -1);
  std::string reply;
  if (!Client::exchange(socket, "get", key, "", deadline, &reply)) {
    fail(ErrorCode::kIo, "[store] nobody has set '", key, "' within ", timeout.count(),
         " s: check that every rank has started");
  }
  return reply.substr(1);
}

int64_t TcpStore::add(const std::string& key, int64_t amount) {
  return std::atoll(client_->ask("add", key, std::to_string(amount)).substr(1).c_str());
}

std::vector<int> TcpStore::lost_ranks() {
  const std::string reply = client_->ask("lost", "", "");
  std::vector<int> ranks;
  const char* at = reply.c_str() + 1;
  char* end = nullptr;
  for (long rank = std::strtol(at, &end, 10); end != at; rank = std::strtol(at, &end, 10)) {
    ranks.push_back(static_cast<int>(rank));
    at = end;
  }
  return ranks;
}

}  // namespace mytorch::distributed
