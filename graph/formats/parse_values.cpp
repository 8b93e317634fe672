// Reading values from a graph's text: buffers, types, shapes and strides.
#include <algorithm>
#include <charconv>
#include <string>

#include "absl/strings/ascii.h"
#include "core/types/errors.h"
#include "graph/formats/graph_parser.h"

namespace mytorch::graph {
namespace {

constexpr size_t kMaxDims = 64;
constexpr size_t kMaxSymbols = 16, kMaxName = 64;

}  // namespace

ValueId GraphParser::number() {
  const size_t begin = at_;
  if (at_ < text_.size() && !absl::ascii_isdigit(static_cast<unsigned char>(text_[at_]))) {
    refuse(here(), " stands where the number of a value belongs, as in %3");
  }
  size_t end = at_;
  while (end < text_.size() && absl::ascii_isdigit(static_cast<unsigned char>(text_[end]))) ++end;
  int64_t value = 0;
  const auto found = std::from_chars(text_.data() + at_, text_.data() + end, value);
  // The table of values has a place for each number up to the largest.
  const auto limit = static_cast<int64_t>(1024 + 16 * declared_count_);
  if (found.ec != std::errc() || value > limit) {
    refuse_at(begin, "the number of a value is too large after ", declared_count_,
              " values: number them from %0 on");
  }
  at_ = end;
  return static_cast<ValueId>(value);
}

bool GraphParser::is_known(ValueId id) const {
  return id < static_cast<ValueId>(graph_.values.size()) && graph_.values[id].buffer >= 0;
}

ValueId GraphParser::reference(bool in_type) {
  expect('%', "before the number of a value");
  const size_t begin = at_ - 1;
  const ValueId id = number();
  if (!is_known(id) || (!in_type && !usable_[id])) {
    refuse_at(begin, "%", id, " is not defined here: write it as a result of a line above");
  }
  return id;
}

void GraphParser::end_line() {
  for (const ValueId id : defined_) usable_[id] = true;
  defined_.clear();
}

int32_t GraphParser::add_buffer(const Device& on) {
  graph_.buffers.push_back({BufferOrigin::kInside, -1, {}, on, 0});
  is_memory_.push_back(false);
  is_empty_.push_back(false);
  return static_cast<int32_t>(graph_.buffers.size() - 1);
}

GraphParser::Declared GraphParser::declaration() {
  Declared found;
  expect('%', "before the number of a value");
  found.at = at_ - 1;
  found.id = number();
  expect(':', "between a value and its type");
  ValueInfo info;
  info.dtype = dtype();
  geometry(found.at, &info);
  bool view = take_word("in");
  bool on_device = false;
  Device on;
  if (!view && next_is_word()) {
    on = device();
    on_device = true;
    view = take_word("in");
  }
  if (view) info.buffer = graph_.values[reference(true)].buffer;
  if (take('+')) info.offset = count("the offset of a view");
  check_span(found.at, info);
  if (is_known(found.id)) {
    const ValueInfo& known = graph_.values[found.id];
    const bool same = known.dtype == info.dtype && known.sizes == info.sizes &&
                      known.strides == info.strides && known.offset == info.offset &&
                      (!view || info.buffer == known.buffer);
    if (!same) {
      refuse_at(found.at, "%", found.id,
                " is defined already, with another type: give the new value another number");
    }
    info.buffer = known.buffer;
  }
  if (info.buffer >= 0) {
    const Device& of = graph_.buffers[info.buffer].device;
    if (on != of) {
      refuse_at(found.at, "the memory of %", found.id, " is on ", of.str(), ": write ", of.str(),
                on_device ? " in place of " : " after its type, not ", on.str());
    }
    if (is_known(found.id)) return found;
  } else {
    info.buffer = add_buffer(on);
    first_types_.push_back(info.dtype);
    found.fresh = true;
  }
  if (static_cast<ValueId>(graph_.values.size()) <= found.id) {
    graph_.values.resize(static_cast<size_t>(found.id) + 1);
    usable_.resize(graph_.values.size());
  }
  graph_.values[found.id] = std::move(info);
  defined_.push_back(found.id);
  ++declared_count_;
  return found;
}

void GraphParser::check_bools(const Declared& found) const {
  const ValueInfo& info = graph_.values[found.id];
  const ScalarType first = first_types_[info.buffer];
  if (first != info.dtype && (first == kBool || info.dtype == kBool)) {
    refuse_at(found.at, "memory of type ", dtype_name(first), " has no view of type ",
              dtype_name(info.dtype), ": convert it with an operator");
  }
}

void GraphParser::geometry(size_t at, ValueInfo* info) {
  expect('[', "after the type of a value");
  const auto dims = [&](Dims* to, const char* what) {
    if (next_is(']') || next_is(';')) return;
    do {
      if (to->size() == kMaxDims) refuse("a tensor has at most ", kMaxDims, " dimensions");
      const bool is_size = to == &info->sizes && in_arguments_;
      if (!is_size || !define_symbol(to)) to->push_back(count(what));
    } while (take(','));
  };
  dims(&info->sizes, "a size");
  const bool strided = take(';');
  if (strided) dims(&info->strides, "a stride");
  if (strided && info->strides.size() != info->sizes.size()) {
    refuse("the value has ", info->sizes.size(), " sizes and ", info->strides.size(),
           " strides: write one stride for each size");
  }
  expect(']', "after the shape of a value");
  if (strided) return;
  info->strides.resize(info->sizes.size());
  check_span(at, *info);  // with strides of 0: the number of elements
  contiguous_strides(info->sizes.data(), static_cast<int>(info->sizes.size()),
                     info->strides.data());
}

bool GraphParser::define_symbol(Dims* sizes) {
  skip(true);
  const size_t begin = at_;
  const std::string name(word());
  if (name.empty() || !absl::ascii_isalpha(static_cast<unsigned char>(name[0])) || !take('=')) {
    at_ = begin;
    return false;
  }
  if (name.size() > kMaxName || symbols_.size() == kMaxSymbols) {
    refuse_at(begin, "a graph has at most ", kMaxSymbols, " symbols, of ", kMaxName, " letters");
  }
  if (symbols_.contains(name)) refuse_at(begin, shown(name), " is defined twice");
  int64_t size = count("a size");
  for (const SizeSymbol& given : sizes_) {
    if (given.name == name) size = given.size;
  }
  symbols_[name] = size;
  found_symbols_.push_back({name, graph_.arguments.size(), sizes->size(), size});
  sizes->push_back(size);
  return true;
}

bool GraphParser::next_is_word() {
  skip(depth_ > 0);
  return at_ < text_.size() && is_word(text_[at_]);
}

void GraphParser::check_span(size_t at, const ValueInfo& info) const {
  try {
    span_of(info);
  } catch (const Error& error) {
    refuse_at(at, error.what());
  }
}

}  // namespace mytorch::graph
