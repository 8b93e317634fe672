// The device of a plug-in under test. Each call checks the returned status.
#pragma once

#include <string>

#include "conformance/plugin.h"

namespace mytorch::conformance {

class TestDevice {
 public:
  explicit TestDevice(const std::string& path);

  const mt_device_ops& ops() const { return ops_; }
  void* self() { return plugin_.self(); }
  bool has_streams() const { return ops_.create_stream != nullptr; }

  void* stream();  // creates a stream; NULL if the device has none
  void destroy(void* stream);
  void* allocate(size_t bytes, void* stream);
  void release(void* data, size_t bytes, void* stream);
  void copy(int kind, void* to, const void* from, size_t bytes, void* stream);
  void synchronize(void* stream);

 private:
  void need(int status, const char* what);
  Plugin plugin_;
  mt_device_ops ops_;
};

class Block {
 public:
  Block(TestDevice& device, size_t bytes, void* stream)
      : device_(device), bytes_(bytes), stream_(stream), data_(device.allocate(bytes, stream)) {}
  ~Block() { device_.release(data_, bytes_, stream_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void* data() const { return data_; }

 private:
  TestDevice& device_;
  size_t bytes_;
  void* stream_;
  void* data_;
};

// Returns pseudo-random bytes.
std::string pattern(size_t bytes, unsigned seed);

}  // namespace mytorch::conformance
