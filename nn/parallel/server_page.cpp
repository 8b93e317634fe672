#include "nn/parallel/server_page.h"

#include <algorithm>
#include <cstring>

#include "mytorch/ops/zeros.h"
#include "mytorch/tensor_values.h"

namespace mytorch::nn::served {

std::vector<Layout> layouts(const std::vector<Tensor>& parameters, const std::vector<int>& owners,
                            const std::vector<int>& servers, size_t workers) {
  std::vector<Layout> result;
  for (const int rank : servers) {
    Layout layout{.rank = rank, .workers = static_cast<int64_t>(workers)};
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (owners[i] != rank) continue;
      layout.numbers.push_back(i);
      layout.offsets.push_back(layout.value_bytes);
      layout.shapes.push_back(parameters[i].sizes().vec());
      layout.types.push_back(parameters[i].dtype());
      layout.value_bytes = Layout::aligned(layout.value_bytes + parameters[i].nbytes());
    }
    result.push_back(std::move(layout));
  }
  return result;
}

Tensor memory(int64_t bytes) { return mytorch::zeros({bytes}, kUInt8); }

Tensor view_of(const Tensor& memory, int64_t begin, const Layout& layout, size_t place) {
  char* const data = static_cast<char*>(memory.data_ptr()) + begin + layout.offsets[place];
  return mytorch::from_blob(
      data, layout.shapes[place], [memory](void*) {}, TensorOptions().dtype(layout.types[place]));
}

int64_t number_at(const Tensor& page, int64_t offset) {
  int64_t value = 0;
  std::memcpy(&value, static_cast<const char*>(page.raw_data()) + offset, sizeof(value));
  return value;
}

void set_number(const Tensor& page, int64_t offset, int64_t value) {
  std::memcpy(static_cast<char*>(page.data_ptr()) + offset, &value, sizeof(value));
}

std::string message_of(const Tensor& page, const Layout& layout) {
  const char* const text = static_cast<const char*>(page.raw_data()) + layout.message();
  return {text, ::strnlen(text, static_cast<size_t>(kMessageBytes))};
}

void set_message(const Tensor& page, const Layout& layout, const std::string& text) {
  const size_t bytes = std::min(text.size(), static_cast<size_t>(kMessageBytes) - 1);
  char* const to = static_cast<char*>(page.data_ptr()) + layout.message();
  std::memcpy(to, text.data(), bytes);
  to[bytes] = '\0';
}

}  // namespace mytorch::nn::served
