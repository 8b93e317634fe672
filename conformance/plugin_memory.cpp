// Tests of a device's memory and copies.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <thread>

#include "conformance/plugin_device.h"

namespace mytorch::conformance {
namespace {

void there_and_back(const std::string& path) {
  TestDevice device(path);
  void* stream = device.stream();
  for (const size_t bytes : {1u, 2u, 3u, 63u, 64u, 65u, 4097u, 1u << 20}) {
    const std::string sent = pattern(bytes, static_cast<unsigned>(bytes));
    const Block a(device, bytes, stream);
    const Block b(device, bytes, stream);
    device.copy(MT_COPY_TO_DEVICE, a.data(), sent.data(), bytes, stream);
    device.copy(MT_COPY_ON_DEVICE, b.data(), a.data(), bytes, stream);
    std::string got(bytes + 8, '#');
    device.copy(MT_COPY_TO_HOST, got.data(), b.data(), bytes, stream);
    device.synchronize(stream);
    promise(got.compare(0, bytes, sent) == 0,
            std::to_string(bytes) + " bytes changed on the way to the device and back");
    promise(got.substr(bytes) == std::string(8, '#'),
            "a copy of " + std::to_string(bytes) + " bytes wrote more than that");
    // Copies into the middle of a block, because a tensor may begin anywhere.
    if (bytes > 64) {
      device.copy(MT_COPY_TO_DEVICE, static_cast<char*>(a.data()) + 5, "12345", 5, stream);
      device.copy(MT_COPY_TO_HOST, got.data(), static_cast<char*>(a.data()) + 4, 7, stream);
      device.synchronize(stream);
      promise(got.compare(0, 7, sent[4] + std::string("12345") + sent[10]) == 0,
              "a copy into the middle of a block wrote to another place");
    }
  }
}

void apart(const std::string& path) {
  TestDevice device(path);
  std::vector<std::pair<char*, size_t>> blocks;
  for (int i = 0; i < 200; ++i) {
    const size_t bytes = static_cast<size_t>(1 + i * 37 % 1000);
    auto* data = static_cast<char*>(device.allocate(bytes, nullptr));
    promise(reinterpret_cast<uintptr_t>(data) % 64 == 0, "memory is not aligned to 64 bytes");
    for (const auto& [other, size] : blocks) {
      promise(data + bytes <= other || other + size <= data, "two blocks overlap");
    }
    blocks.emplace_back(data, bytes);
  }
  for (const auto& [data, bytes] : blocks) device.release(data, bytes, nullptr);
}

void nothing(const std::string& path) {
  TestDevice device(path);
  void* stream = device.stream();
  const mt_device_ops& d = device.ops();
  void* none = d.allocate(device.self(), 0, 0, stream);  // NULL or not, it can be released
  d.release(device.self(), 0, none, 0, stream);
  d.release(device.self(), 0, nullptr, 0, stream);
  const Block block(device, 8, stream);
  char byte = 'x';
  device.copy(MT_COPY_TO_HOST, &byte, block.data(), 0, stream);
  device.copy(MT_COPY_TO_DEVICE, block.data(), &byte, 0, stream);
  device.synchronize(stream);
  promise(byte == 'x', "a copy of 0 bytes wrote");
}

void out_of_memory(const std::string& path) {
  TestDevice device(path);
  const mt_device_ops& d = device.ops();
  void* stream = device.stream();
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 63, size_t{1} << 62, size_t{1} << 50}) {
    void* data = d.allocate(device.self(), 0, bytes, stream);
    promise(data == nullptr, "an allocation of " + std::to_string(bytes) + " bytes succeeded");
    Plugin::message();
  }
  const Block block(device, 100, stream);  // smaller requests still succeed
  if (d.memory_info == nullptr) return;
  uint64_t free_bytes = 0;
  uint64_t total = 0;
  promise(d.memory_info(device.self(), 0, &free_bytes, &total) == MT_OK, "memory_info fails");
  promise(free_bytes <= total && total > 0,
          "memory_info reports more free memory than total memory");
  if (total > (uint64_t{4} << 30)) return;
  // Fills the memory, then releases all of it.
  std::vector<void*> blocks;
  const size_t bytes = std::max<size_t>(total / 16, 64);
  while (blocks.size() < 100) {
    void* data = d.allocate(device.self(), 0, bytes, stream);
    if (data == nullptr) break;
    blocks.push_back(data);
  }
  promise(blocks.size() < 17, "allocations exceed the total memory");
  promise(!blocks.empty(), "an allocation of a sixteenth of the memory failed");
  for (void* data : blocks) d.release(device.self(), 0, data, bytes, stream);
  device.synchronize(stream);
  void* again = d.allocate(device.self(), 0, bytes, stream);
  promise(again != nullptr, "released memory cannot be allocated again");
  d.release(device.self(), 0, again, bytes, stream);
}

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0;
  uint64_t resident = 0;
  file >> pages >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void leak(const std::string& path) {
  TestDevice device(path);
  const mt_device_ops& d = device.ops();
  void* stream = device.stream();
  constexpr size_t kBytes = size_t{4} << 20;
  const std::string data(kBytes, 'x');
  const auto used = [&]() -> uint64_t {
    uint64_t free_bytes = 0;
    uint64_t total = 0;
    device.synchronize(stream);
    if (d.memory_info == nullptr) return resident_bytes();
    promise(d.memory_info(device.self(), 0, &free_bytes, &total) == MT_OK, "memory_info fails");
    return total - free_bytes;
  };
  uint64_t before = 0;
  constexpr int kRounds = 40;
  for (int i = 0; i < kRounds; ++i) {
    if (i == 4) before = used();  // an allocator may keep some for reuse
    const Block block(device, kBytes, stream);
    device.copy(MT_COPY_TO_DEVICE, block.data(), data.data(), kBytes, stream);
    device.synchronize(stream);
  }
  const uint64_t after = used();
  promise(after < before + kRounds / 2 * kBytes,
          std::to_string((after - before) >> 20) + " MiB are missing after " +
              std::to_string(kRounds) + " blocks of 4 MiB were allocated and released");
}

void threads(const std::string& path) {
  TestDevice device(path);
  std::atomic<bool> wrong{false};
  std::vector<std::thread> all;
  for (unsigned t = 0; t < 8; ++t) {
    all.emplace_back([&, t] {
      try {
        void* stream = device.stream();
        for (unsigned i = 0; i < 60; ++i) {
          const size_t bytes = 64 + (t * 7919 + i * 104729) % 20000;
          const std::string sent = pattern(bytes, t * 1000 + i);
          std::string got(bytes, 0);
          const Block a(device, bytes, stream);
          const Block b(device, bytes, stream);
          device.copy(MT_COPY_TO_DEVICE, a.data(), sent.data(), bytes, stream);
          device.copy(MT_COPY_ON_DEVICE, b.data(), a.data(), bytes, stream);
          device.copy(MT_COPY_TO_HOST, got.data(), b.data(), bytes, stream);
          device.synchronize(stream);
          if (got != sent) wrong = true;
        }
        device.destroy(stream);
      } catch (const std::exception&) {
        wrong = true;
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  promise(!wrong, "data changed with 8 concurrent threads");
}

}  // namespace

void add_memory_tests(std::vector<ContractTest>& tests) {
  tests.push_back({"copies", "copies preserve every byte", there_and_back});
  tests.push_back({"apart", "blocks are aligned to 64 bytes and do not overlap", apart});
  tests.push_back({"no-bytes", "allocations, copies and releases of 0 bytes succeed", nothing});
  tests.push_back({"out-of-memory",
                   "an allocation that fails returns NULL, and the device stays usable",
                   out_of_memory});
  tests.push_back({"leak", "released memory becomes free", leak});
  tests.push_back({"threads", "all functions may be called from any thread", threads});
}

}  // namespace mytorch::conformance
