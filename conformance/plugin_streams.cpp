// Streams and events of a device: what is queued on one stream runs in order, and streams wait for
// each other by events.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "conformance/plugin_device.h"
#include "mytorch/error.h"

namespace mytorch::conformance {

TestDevice::TestDevice(const std::string& path) : plugin_(path), ops_(plugin_.device()) {}

void TestDevice::need(int status, const char* what) {
  promise(status == MT_OK, std::string(what) + " failed with status " + std::to_string(status) +
                               ": " + Plugin::message());
}

void* TestDevice::stream() {
  if (!has_streams()) return nullptr;
  void* stream = ops_.create_stream(self(), 0, 0);
  promise(stream != nullptr, "create_stream gave NULL: " + Plugin::message());
  return stream;
}

void TestDevice::destroy(void* stream) {
  if (stream != nullptr && ops_.destroy_stream != nullptr) ops_.destroy_stream(self(), 0, stream);
}

void* TestDevice::allocate(size_t bytes, void* stream) {
  void* data = ops_.allocate(self(), 0, bytes, stream);
  promise(data != nullptr, std::to_string(bytes) + " bytes were not given: " + Plugin::message());
  return data;
}

void TestDevice::release(void* data, size_t bytes, void* stream) {
  ops_.release(self(), 0, data, bytes, stream);
}

void TestDevice::copy(int kind, void* to, const void* from, size_t bytes, void* stream) {
  need(ops_.copy(self(), 0, kind, to, from, bytes, stream), "copy");
}

void TestDevice::synchronize(void* stream) {
  if (ops_.synchronize != nullptr) need(ops_.synchronize(self(), 0, stream), "synchronize");
}

std::string pattern(size_t bytes, unsigned seed) {
  std::string text(bytes, 0);
  uint32_t x = seed * 2654435761u + 1;
  for (char& c : text) {
    x = x * 1664525u + 1013904223u;
    c = static_cast<char>(x >> 24);
  }
  return text;
}

namespace {

constexpr size_t kLarge = size_t{4} << 20;  // long enough to copy for others to overtake it

struct Streams {
  explicit Streams(const std::string& path) : device(path) {
    if (!device.has_streams()) throw Skipped{"it has one queue, in order"};
    first = device.stream();
    second = device.stream();
  }
  void* record(void* on) {
    void* event = device.ops().record_event(device.self(), 0, on);
    promise(event != nullptr, "record_event gave NULL: " + Plugin::message());
    return event;
  }
  void wait(void* on, void* event) {
    promise(device.ops().wait_event(device.self(), 0, on, event) == MT_OK, "wait_event fails");
  }
  void forget(void* event) { device.ops().destroy_event(device.self(), event); }
  bool is_done(void* event) {
    const int state = device.ops().query_event(device.self(), event);
    promise(state == 0 || state == 1, "query_event gave " + std::to_string(state));
    return state == 1;
  }
  TestDevice device;
  void* first;
  void* second;
};

// A long chain on one stream: its last block has the bytes of its first.
struct Chain {
  Chain(Streams& s, void* stream, unsigned seed, size_t bytes = kLarge, int length = 5)
      : sent(std::make_shared<const std::string>(pattern(bytes, seed))) {
    for (int i = 0; i < length; ++i) {
      blocks.push_back(std::make_unique<Block>(s.device, bytes, stream));
    }
    s.device.copy(MT_COPY_TO_DEVICE, blocks[0]->data(), sent->data(), bytes, stream);
    for (size_t i = 1; i < blocks.size(); ++i) {
      s.device.copy(MT_COPY_ON_DEVICE, blocks[i]->data(), blocks[i - 1]->data(), bytes, stream);
    }
  }
  void* last() const { return blocks.back()->data(); }
  std::shared_ptr<const std::string> sent;  // to be kept until it was copied
  std::vector<std::unique_ptr<Block>> blocks;
};

void one_stream(const std::string& path) {
  Streams s(path);
  for (unsigned round = 0; round < 3; ++round) {
    const Chain chain(s, s.first, round);
    std::string got(kLarge, 0);
    s.device.copy(MT_COPY_TO_HOST, got.data(), chain.last(), kLarge, s.first);
    s.device.synchronize(s.first);
    promise(got == *chain.sent,
            "what is queued on one stream does not run in order, or synchronize "
            "returns before it is done");
  }
}

void two_streams(const std::string& path) {
  Streams s(path);
  for (unsigned round = 0; round < 3; ++round) {
    const Chain chain(s, s.first, 100 + round);
    void* event = s.record(s.first);
    s.wait(s.second, event);
    s.forget(event);  // the wait that is queued keeps what it needs
    std::string got(kLarge, 0);
    s.device.copy(MT_COPY_TO_HOST, got.data(), chain.last(), kLarge, s.second);
    s.device.synchronize(s.second);
    promise(got == *chain.sent,
            "a stream that waits for an event goes on before the event's stream has come there");
  }
}

void host_waits(const std::string& path) {
  Streams s(path);
  for (unsigned round = 0; round < 3; ++round) {
    const Chain chain(s, s.first, 200 + round);
    std::string got(kLarge, 0);
    s.device.copy(MT_COPY_TO_HOST, got.data(), chain.last(), kLarge, s.first);
    void* event = s.record(s.first);
    s.wait(nullptr, event);
    promise(got == *chain.sent, "the host does not wait for an event (wait_event, stream NULL)");
    if (s.device.ops().query_event != nullptr) {
      promise(s.is_done(event), "an event that was waited for is not done");
    }
    s.forget(event);
  }
}

void queries(const std::string& path) {
  Streams s(path);
  if (s.device.ops().query_event == nullptr) throw Skipped{"it has no query_event"};
  void* early = s.record(s.first);
  s.device.synchronize(s.first);
  promise(s.is_done(early), "an event on a stream that was waited for is not done");
  s.forget(early);
  for (unsigned round = 0; round < 3; ++round) {
    const Chain chain(s, s.first, 300 + round);
    std::string got(kLarge, 0);
    s.device.copy(MT_COPY_TO_HOST, got.data(), chain.last(), kLarge, s.first);
    void* event = s.record(s.first);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!s.is_done(event)) {
      promise(std::chrono::steady_clock::now() < limit, "an event is never done");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    promise(got == *chain.sent, "an event is done before the work that was queued before it");
    s.forget(event);
  }
}

// Memory that is released while work that uses it is queued, and what is then made of it.
void released_in_use(const std::string& path) {
  Streams s(path);
  const std::string other = pattern(kLarge, 500);
  for (unsigned round = 0; round < 3; ++round) {
    std::string got(kLarge, 0);
    std::shared_ptr<const std::string> sent;
    {
      const Chain chain(s, s.first, 400 + round, kLarge, 12);
      sent = chain.sent;
      s.device.copy(MT_COPY_TO_HOST, got.data(), chain.last(), kLarge, s.first);
    }
    std::vector<std::unique_ptr<Block>> others;
    for (int i = 0; i < 12; ++i) {
      others.push_back(std::make_unique<Block>(s.device, kLarge, s.second));
      s.device.copy(MT_COPY_TO_DEVICE, others.back()->data(), other.data(), kLarge, s.second);
    }
    s.device.synchronize(s.second);
    s.device.synchronize(s.first);
    promise(got == *sent, "memory that queued work uses was given to another stream");
  }
}

void many_streams(const std::string& path) {
  Streams s(path);
  std::vector<void*> streams;
  std::vector<std::string> got(16, std::string(4096, 0));
  std::vector<std::unique_ptr<Chain>> chains;
  for (unsigned i = 0; i < 16; ++i) {
    streams.push_back(s.device.stream());
    chains.push_back(std::make_unique<Chain>(s, streams[i], i, 4096, 20));
  }
  for (unsigned i = 0; i < 16; ++i) {
    s.device.copy(MT_COPY_TO_HOST, got[i].data(), chains[i]->last(), 4096, streams[i]);
  }
  for (unsigned i = 0; i < 16; ++i) {
    s.device.synchronize(streams[i]);
    promise(got[i] == *chains[i]->sent, "one of 16 streams came to something else");
  }
  chains.clear();
  for (void* stream : streams) s.device.destroy(stream);
}

}  // namespace

void add_stream_tests(std::vector<ContractTest>& tests) {
  tests.push_back({"stream-order", "one stream runs in order", one_stream});
  tests.push_back({"events", "a stream waits for another one's event", two_streams});
  tests.push_back({"host-waits", "the host waits for an event", host_waits});
  tests.push_back({"event-queries", "an event is done when what came before it is", queries});
  tests.push_back({"released-in-use", "released memory is not reused before queued work is done",
                   released_in_use});
  tests.push_back({"many-streams", "many streams at once do not disturb each other", many_streams});
}

}  // namespace mytorch::conformance
