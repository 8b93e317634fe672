// The window of a parameter server, byte by byte.
//
// A page of counters, written by the workers up to `state` and by the server from there on, and of
// the values of the server's parameters; then a place for the gradients of each worker.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mytorch/tensor.h"

namespace mytorch::nn::served {

constexpr int64_t kNumberBytes = 8, kMessageBytes = 512;

enum State : int64_t { kServing = 0, kFinished = 1, kFailed = 2 };

// What one server's window consists of; the same on all ranks.
struct Layout {
  int rank = 0;  // of the server
  int64_t workers = 0;
  std::vector<size_t> numbers = {};   // of its parameters
  std::vector<int64_t> offsets = {};  // of their values among the values, and of gradients likewise
  // As they are when the layout is made; later they may get another type.
  std::vector<std::vector<int64_t>> shapes = {};
  std::vector<ScalarType> types = {};
  int64_t value_bytes = 0;

  // Offsets of numbers, in the window and the page.
  int64_t pushed(int64_t worker) const { return kNumberBytes * worker; }
  int64_t left(int64_t worker) const { return kNumberBytes * (workers + worker); }
  int64_t state() const { return kNumberBytes * 2 * workers; }
  int64_t applied(int64_t worker) const { return state() + kNumberBytes * (1 + worker); }
  int64_t gone(int64_t worker) const { return applied(workers + worker); }
  int64_t message() const { return gone(workers); }
  int64_t head_bytes() const { return message() + kMessageBytes; }
  // Values and places begin where every type is aligned.
  int64_t values() const { return aligned(head_bytes()); }
  int64_t page_bytes() const { return values() + value_bytes; }
  int64_t place(int64_t worker) const { return page_bytes() + worker * place_bytes(); }
  // A place has a byte for each parameter, whether it has a gradient, and the gradients.
  int64_t gradients() const { return aligned(static_cast<int64_t>(numbers.size())); }
  int64_t place_bytes() const { return gradients() + value_bytes; }
  int64_t window_bytes() const { return place(workers); }

  static int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
};

// Returns the layout of each server.
std::vector<Layout> layouts(const std::vector<Tensor>& parameters, const std::vector<int>& owners,
                            const std::vector<int>& servers, size_t workers);

// Memory that is zero at first.
Tensor memory(int64_t bytes);
// Returns the value or gradient with this place in the layout, of those that begin at an offset of
// memory. It keeps the memory.
Tensor view_of(const Tensor& memory, int64_t begin, const Layout& layout, size_t place);

// Numbers of a page, or of its head.
int64_t number_at(const Tensor& page, int64_t offset);
void set_number(const Tensor& page, int64_t offset, int64_t value);
std::string message_of(const Tensor& page, const Layout& layout);
void set_message(const Tensor& page, const Layout& layout, const std::string& text);

}  // namespace mytorch::nn::served
