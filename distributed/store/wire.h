// Messages on a socket: a 4-byte length and as many bytes; and fields within a message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mytorch::distributed::wire {

inline constexpr uint32_t kMaxMessage = 17u << 20;

// Appends a field: its length and its bytes.
inline void put(std::string* message, std::string_view field) {
  const auto size = static_cast<uint32_t>(field.size());
  for (int i = 0; i < 4; ++i) message->push_back(static_cast<char>(size >> (8 * i)));
  message->append(field.data(), field.size());
}

inline uint32_t length_at(const char* bytes) {
  uint32_t size = 0;
  for (int i = 0; i < 4; ++i) {
    size |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return size;
}

// Takes the next field from `rest`. Returns false if the message ends before it does.
inline bool take(std::string_view* rest, std::string* field) {
  if (rest->size() < 4) return false;
  const uint32_t size = length_at(rest->data());
  if (rest->size() - 4 < size) return false;
  field->assign(rest->data() + 4, size);
  rest->remove_prefix(4 + size);
  return true;
}

}  // namespace mytorch::distributed::wire
