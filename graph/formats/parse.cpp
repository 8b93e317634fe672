#include "graph/formats/parse.h"

#include <algorithm>
#include <utility>

#include "core/types/checked.h"
#include "core/types/errors.h"
#include "graph/formats/graph_parser.h"

namespace mytorch::graph {
namespace {

constexpr int64_t kMaxIndex = 1 << 20;  // of arguments and tensors from outside

}  // namespace

Graph GraphParser::run() {
  skip(true);
  if (!take_word("graph")) refuse(here(), " stands where 'graph(' belongs");
  arguments();
  skip(true);
  expect('{', "after the arguments of the graph");
  while (!done_) {
    skip(true);
    statement();
    end_line();
    skip(false);
    if (!done_ && at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '}') {
      refuse(here(), " follows a complete line: begin a new one");
    }
  }
  skip(true);
  expect('}', "after the line 'return'");
  skip(true);
  if (at_ != text_.size()) refuse(here(), " follows the end of the graph");
  finish();
  return std::move(graph_);
}

void GraphParser::arguments() {
  expect('(', "after 'graph'");
  in_arguments_ = true;
  list(')', [this] {
    const auto index = static_cast<int64_t>(graph_.arguments.size());
    if (index == kMaxIndex) refuse("a graph has at most ", kMaxIndex, " arguments");
    const Declared found = declaration();
    if (found.fresh) {
      GraphBuffer& buffer = graph_.buffers[graph_.values[found.id].buffer];
      buffer.origin = BufferOrigin::kArgument;
      buffer.index = static_cast<int32_t>(index);
    }
    check_bools(found);
    graph_.arguments.push_back(found.id);
  });
  in_arguments_ = false;
  end_line();
}

void GraphParser::statement() {
  if (at_ == text_.size()) refuse("the text ends before the line 'return' and '}'");
  const char c = text_[at_];
  if (c == '%' || c == '[') return results_or_header();
  if (!is_word(c)) refuse(here(), " stands where a line of the graph belongs");
  const size_t begin = at_;
  const std::string_view found = word();
  if (found == "none") {
    at_ = begin;
    return results_or_header();
  }
  if (found == "return") {
    skip(false);
    while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '}') {
      graph_.results.push_back(take_word("none") ? kNoValue : operand());
      if (!take(',')) break;
    }
    done_ = true;
    return;
  }
  if (found == "grad") return grad_result();
  if (found == "grad_mode") {
    expect('(', "after 'grad_mode'");
    const size_t at = at_;
    const std::string_view mode = word();
    if (mode != "true" && mode != "false") refuse_at(at, "write grad_mode(true) or (false)");
    grad_mode_ = mode == "true";
    expect(')', "after the mode");
    return;
  }
  at_ = begin;
  call({});
}

Leaf GraphParser::leaf() {
  skip(depth_ > 0);
  const size_t begin = at_;
  const std::string_view kind = word();
  if (kind != "argument" && kind != "outside") {
    refuse_at(begin, shown(kind), " is no leaf: write one such as 'outside 0' or 'argument 0'");
  }
  const auto index = static_cast<int32_t>(count("the number of a leaf", kMaxIndex));
  if (kind == "outside") return {BufferOrigin::kOutside, index};
  if (index >= static_cast<int32_t>(graph_.arguments.size())) {
    refuse_at(begin, "the graph has ", graph_.arguments.size(), " arguments, and no argument ",
              index);
  }
  return {BufferOrigin::kArgument, index};
}

void GraphParser::grad_result() {
  expect('(', "after 'grad'");
  GradResult grad{leaf(), kNoValue};
  expect(')', "after a leaf");
  expect('=', "between a leaf and its grad");
  if (!take_word("none")) grad.grad = operand();
  graph_.grads.push_back(grad);
}

void GraphParser::results_or_header() {
  std::vector<Arg> results;
  Declared last;
  const auto one = [&](Arg* to) {
    last = take_word("none") ? Declared() : declaration();
    to->values.push_back(last.id);
  };
  do {
    Arg& result = results.emplace_back(Arg{Arg::kTensor, {}, {}});
    if (take('[')) {
      result.kind = Arg::kTensors;
      list(']', [&] { one(&result); });
    } else {
      one(&result);
    }
  } while (take(','));
  const bool single = results.size() == 1 && results[0].kind == Arg::kTensor && last.id != kNoValue;
  if (!take('=')) {
    if (!single || last.fresh) {
      refuse(here(), " stands where '=' and a call belong, or 'in %0' for another view of %0");
    }
    check_bools(last);
    return;
  }
  skip(false);
  const size_t begin = at_;
  const std::string_view name = word();
  if (name == "outside" || name == "grad" || name == "memory") {
    if (!single || !last.fresh) {
      refuse_at(begin, shown(name), " defines one new value, which is in no other");
    }
    return source(name, begin, graph_.values[last.id].buffer);
  }
  at_ = begin;
  call(std::move(results));
}

// Reads the memory of a value that no operator gives, after its kind.
void GraphParser::source(std::string_view kind, size_t begin, int32_t buffer) {
  expect('(', "after the kind of a value");
  GraphBuffer& made = graph_.buffers[buffer];
  if (kind == "outside") {
    made.origin = BufferOrigin::kOutside;
    made.index = static_cast<int32_t>(count("the number of a tensor", kMaxIndex));
    if (!outside_.insert(made.index).second) {
      refuse_at(begin, "outside(", made.index,
                ") is defined above: write its other views as '%1: float32[2] in %0'");
    }
  } else if (kind == "grad") {
    made.origin = BufferOrigin::kGrad;
    made.leaf = leaf();
  } else {
    is_empty_[buffer] = true;
    // "all": as many as its values have.
    is_memory_[buffer] = symbols_.empty() || !take_word("all");
    if (is_memory_[buffer]) {
      made.bytes = static_cast<uint64_t>(count("the number of bytes", kMaxExtent));
    }
  }
  expect(')', "after the kind of a value");
}

// Views of an argument stay within the elements that arguments have.
void GraphParser::check_arguments() const {
  std::vector<int64_t> begins(graph_.buffers.size(), INT64_MAX), ends(graph_.buffers.size(), 0);
  const auto bytes_of = [](const ValueInfo& info) {
    const Span span = span_of(info);
    const int64_t size = element_size(info.dtype);
    return Span{span.begin * size, span.end * size};
  };
  for (const ValueId id : graph_.arguments) {
    const Span span = bytes_of(graph_.values[id]);
    int64_t& begin = begins[graph_.values[id].buffer];
    int64_t& end = ends[graph_.values[id].buffer];
    begin = std::min(begin, span.begin);
    end = std::max(end, span.end);
  }
  for (size_t id = 0; id < graph_.values.size(); ++id) {
    const ValueInfo& info = graph_.values[id];
    if (info.buffer < 0) continue;
    const GraphBuffer& buffer = graph_.buffers[info.buffer];
    const Span span = bytes_of(info);
    if (span.begin == span.end) continue;
    const bool fits = buffer.origin != BufferOrigin::kArgument ||
                      (span.begin >= begins[info.buffer] && span.end <= ends[info.buffer]);
    if (!fits) {
      fail(ErrorCode::kValue, "[graph] %", id, " leaves the memory of argument ", buffer.index,
           ": a view has elements of the argument alone");
    }
  }
}

void GraphParser::finish() {
  check_arguments();
  // Memory that nothing filled does not leave.
  const auto check = [this](ValueId id) {
    if (id != kNoValue && is_empty_[graph_.values[id].buffer]) {
      fail(ErrorCode::kValue, "[graph] %", id, " is returned, and nothing fills it");
    }
  };
  for (const ValueId id : graph_.results) check(id);
  for (const GradResult& grad : graph_.grads) check(grad.grad);
  // The bytes of other memory are those of its values.
  int32_t unused = -1;
  for (ValueInfo& info : graph_.values) {
    if (info.buffer < 0) {  // a number that the text does not use
      if (unused < 0) unused = add_buffer(Device());
      info = {unused, kUInt8, {0}, {1}, 0};
      continue;
    }
    GraphBuffer& buffer = graph_.buffers[info.buffer];
    const auto bytes = static_cast<uint64_t>(span_of(info).end * element_size(info.dtype));
    if (!is_memory_[info.buffer]) {
      buffer.bytes = std::max(buffer.bytes, bytes);
    } else if (bytes > buffer.bytes) {
      fail(ErrorCode::kValue, "[graph] a view leaves memory(", buffer.bytes,
           "): write memory of at least ", bytes, " bytes");
    }
  }
}

Span span_of(const ValueInfo& info) {
  Wide begin = info.offset, end = info.offset, product = 1;
  bool empty = false;
  for (size_t i = 0; i < info.sizes.size(); ++i) {
    empty = empty || info.sizes[i] == 0;
    product *= std::max<int64_t>(info.sizes[i], 1);
    if (info.sizes[i] < 0 || product > kMaxExtent / element_size(info.dtype)) {
      fail(ErrorCode::kValue, "the shape ", shape_str(as_list(info.sizes)),
           " has too many elements");
    }
    const Wide reach = Wide{info.strides[i]} * std::max<int64_t>(info.sizes[i] - 1, 0);
    (reach < 0 ? begin : end) += reach;
    if (begin < 0 || end > kMaxExtent / element_size(info.dtype)) {
      fail(ErrorCode::kValue, "a view with these sizes, strides and offset leaves its memory");
    }
  }
  if (info.offset < 0 || end >= kMaxExtent / element_size(info.dtype)) {
    fail(ErrorCode::kValue, "a view with this offset leaves its memory");
  }
  if (empty) return {};
  return {static_cast<int64_t>(begin), static_cast<int64_t>(end) + 1};
}

Graph parse_text(std::string_view text, const Schemas* schemas, std::vector<SizeSymbol>* symbols) {
  const std::vector<SizeSymbol> sizes = symbols != nullptr ? *symbols : std::vector<SizeSymbol>();
  GraphParser parser(text, schemas, sizes);
  Graph graph = parser.run();
  if (symbols != nullptr) *symbols = parser.take_symbols();
  return graph;
}

Schemas schemas_of(const Graph& graph) {
  Schemas found;
  for (const GraphNode& node : graph.nodes) found.emplace(node.op().name, node.op().hash);
  return found;
}

}  // namespace mytorch::graph
