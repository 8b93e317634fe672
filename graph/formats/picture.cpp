#include "graph/formats/picture.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/types/xml.h"

namespace mytorch::graph {
namespace {

struct Box {
  std::string title;
  std::string type;    // of its first value
  bool round = false;  // a source or a result
};

struct PictureEdge {
  size_t from;
  size_t to;
  bool operator<(const PictureEdge& other) const {
    return std::pair(from, to) < std::pair(other.from, other.to);
  }
  bool operator==(const PictureEdge&) const = default;
};

struct Drawing {
  std::vector<Box> boxes;
  std::vector<PictureEdge> edges;  // each from an earlier box to a later one
};

std::string type_text(const Graph& graph, ValueId id) {
  const ValueInfo& info = graph.values[id];
  return absl::StrCat(dtype_name(info.dtype), "[", absl::StrJoin(info.sizes, ", "), "]");
}

Drawing drawing_of(const Graph& graph) {
  constexpr size_t kNone = SIZE_MAX;
  Drawing drawing;
  // The box that last wrote the memory of a buffer.
  std::vector<size_t> writer(graph.buffers.size(), kNone);
  const auto add = [&](std::string title, ValueId id, bool round) {
    drawing.boxes.push_back({std::move(title), id == kNoValue ? "" : type_text(graph, id), round});
    return drawing.boxes.size() - 1;
  };
  const auto connect = [&](ValueId id, size_t to) {
    const size_t from = writer[graph.values[id].buffer];
    if (from != kNone && from != to) drawing.edges.push_back({from, to});
  };
  for (size_t id = 0; id < graph.values.size(); ++id) {
    const int32_t at = graph.values[id].buffer;
    const GraphBuffer& buffer = graph.buffers[at];
    if (writer[at] != kNone || buffer.origin == BufferOrigin::kInside) continue;
    const char* kind = buffer.origin == BufferOrigin::kArgument  ? "argument"
                       : buffer.origin == BufferOrigin::kOutside ? "outside"
                                                                 : "grad of outside";
    const int32_t index = buffer.origin == BufferOrigin::kGrad ? buffer.leaf.index : buffer.index;
    writer[at] = add(absl::StrCat(kind, " ", index), static_cast<ValueId>(id), true);
  }
  for (const GraphNode& node : graph.nodes) {
    ValueId first = kNoValue;
    node.for_each_result([&](ValueId id) { first = first == kNoValue ? id : first; });
    node.for_each_written([&](ValueId id) { first = first == kNoValue ? id : first; });
    const size_t box = add(node.name(), first, false);
    node.for_each_operand([&](ValueId id) { connect(id, box); });
    node.for_each_written([&](ValueId id) { writer[graph.values[id].buffer] = box; });
    node.for_each_result([&](ValueId id) {
      // A view leaves the memory to its writer, but what follows takes the view.
      writer[graph.values[id].buffer] = box;
    });
  }
  for (size_t i = 0; i < graph.results.size(); ++i) {
    if (graph.results[i] == kNoValue) continue;
    const size_t box = add(absl::StrCat("result ", i), graph.results[i], true);
    connect(graph.results[i], box);
  }
  for (const GradResult& grad : graph.grads) {
    if (grad.grad == kNoValue) continue;
    const size_t box = add(absl::StrCat("grad of outside ", grad.leaf.index), grad.grad, true);
    connect(grad.grad, box);
  }
  std::sort(drawing.edges.begin(), drawing.edges.end());
  drawing.edges.erase(std::unique(drawing.edges.begin(), drawing.edges.end()), drawing.edges.end());
  return drawing;
}

// ---- the layers ----

// A box, or a place that an edge passes on its way through a layer.
struct Cell {
  size_t box;  // or SIZE_MAX
  size_t layer;
  std::vector<size_t> above, below;  // neighbours
  double x = 0;                      // of its middle
  double width = 0;
};

constexpr double kBoxHeight = 34, kLayerHeight = 70, kGap = 14, kMargin = 20;
constexpr double kLetter = 7;  // the width of one, in the font that the picture names
constexpr size_t kMaxCells = 200'000;

class PictureLayout {
 public:
  explicit PictureLayout(const Drawing& drawing) : drawing_(drawing) {
    assign_layers();
    add_cells();
    for (int sweep = 0; sweep < 8; ++sweep) order(sweep % 2 == 0);
    place();
  }

  std::string svg() const;

 private:
  void assign_layers();
  void add_cells();
  void order(bool down);
  void place();
  void pack(std::vector<size_t>* layer, bool from_left);

  const Drawing& drawing_;
  std::vector<size_t> layer_of_;  // by box
  std::vector<Cell> cells_;       // boxes first
  std::vector<std::vector<size_t>> layers_;
  std::vector<std::vector<size_t>> paths_;  // by edge: its cells
};

void PictureLayout::assign_layers() {
  layer_of_.resize(drawing_.boxes.size());
  for (const PictureEdge& edge : drawing_.edges) {  // sorted by their origin, which precedes
    layer_of_[edge.to] = std::max(layer_of_[edge.to], layer_of_[edge.from] + 1);
  }
  // Sources stand close to where they are used.
  std::vector<size_t> first_use(layer_of_.size(), SIZE_MAX);
  for (const PictureEdge& edge : drawing_.edges) {
    first_use[edge.from] = std::min(first_use[edge.from], layer_of_[edge.to]);
  }
  for (size_t box = 0; box < layer_of_.size(); ++box) {
    if (layer_of_[box] == 0 && first_use[box] != SIZE_MAX) layer_of_[box] = first_use[box] - 1;
  }
}

void PictureLayout::add_cells() {
  for (size_t box = 0; box < drawing_.boxes.size(); ++box) {
    const Box& of = drawing_.boxes[box];
    const auto letters = static_cast<double>(std::max(of.title.size(), of.type.size()));
    cells_.push_back({box, layer_of_[box], {}, {}, 0, letters * kLetter + 16});
  }
  size_t passed = 0;
  for (const PictureEdge& edge : drawing_.edges)
    passed += layer_of_[edge.to] - layer_of_[edge.from] - 1;
  for (const PictureEdge& edge : drawing_.edges) {
    std::vector<size_t>& path = paths_.emplace_back(1, edge.from);
    for (size_t layer = layer_of_[edge.from] + 1; layer < layer_of_[edge.to]; ++layer) {
      if (passed > kMaxCells) break;  // a straight line
      cells_.push_back({SIZE_MAX, layer, {}, {}, 0, 4});
      path.push_back(cells_.size() - 1);
    }
    path.push_back(edge.to);
    for (size_t i = 0; i + 1 < path.size(); ++i) {
      cells_[path[i]].below.push_back(path[i + 1]);
      cells_[path[i + 1]].above.push_back(path[i]);
    }
  }
  for (size_t cell = 0; cell < cells_.size(); ++cell) {
    if (layers_.size() <= cells_[cell].layer) layers_.resize(cells_[cell].layer + 1);
    layers_[cells_[cell].layer].push_back(cell);
  }
  for (const auto& layer : layers_) {
    for (size_t i = 0; i < layer.size(); ++i) cells_[layer[i]].x = static_cast<double>(i);
  }
}

double mean_of(const std::vector<Cell>& cells, const std::vector<size_t>& of, double otherwise) {
  if (of.empty()) return otherwise;
  double sum = 0;
  for (const size_t cell : of) sum += cells[cell].x;
  return sum / static_cast<double>(of.size());
}

// Sorts each layer by the means of the neighbours in the layer before.
void PictureLayout::order(bool down) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    std::vector<size_t>& layer = layers_[down ? i : layers_.size() - 1 - i];
    std::vector<std::pair<double, size_t>> keys;
    for (const size_t cell : layer) {
      const Cell& of = cells_[cell];
      keys.emplace_back(mean_of(cells_, down ? of.above : of.below, of.x), cell);
    }
    std::stable_sort(keys.begin(), keys.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t k = 0; k < keys.size(); ++k) {
      layer[k] = keys[k].second;
      cells_[layer[k]].x = static_cast<double>(k);
    }
  }
}

// Moves the cells of a layer apart, which keep their order.
void PictureLayout::pack(std::vector<size_t>* layer, bool from_left) {
  const auto distance = [&](size_t a, size_t b) {
    return (cells_[a].width + cells_[b].width) / 2 + kGap;
  };
  for (size_t k = 1; k < layer->size(); ++k) {
    if (from_left) {
      const size_t left = (*layer)[k - 1], cell = (*layer)[k];
      cells_[cell].x = std::max(cells_[cell].x, cells_[left].x + distance(left, cell));
    } else {
      const size_t right = (*layer)[layer->size() - k], cell = (*layer)[layer->size() - 1 - k];
      cells_[cell].x = std::min(cells_[cell].x, cells_[right].x - distance(cell, right));
    }
  }
}

void PictureLayout::place() {
  for (auto& layer : layers_) {
    for (const size_t cell : layer) cells_[cell].x = 0;
    pack(&layer, true);
  }
  for (int sweep = 0; sweep < 6; ++sweep) {
    const bool down = sweep % 2 == 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      std::vector<size_t>& layer = layers_[down ? i : layers_.size() - 1 - i];
      std::vector<double> wanted;
      for (const size_t cell : layer) {
        const Cell& of = cells_[cell];
        wanted.push_back(mean_of(cells_, down ? of.above : of.below, of.x));
      }
      // The mean of the leftmost and the rightmost solution keeps the layer about its neighbours.
      for (size_t k = 0; k < layer.size(); ++k) cells_[layer[k]].x = wanted[k];
      pack(&layer, true);
      std::vector<double> left;
      for (size_t k = 0; k < layer.size(); ++k) {
        left.push_back(cells_[layer[k]].x);
        cells_[layer[k]].x = wanted[k];
      }
      pack(&layer, false);
      for (size_t k = 0; k < layer.size(); ++k) {
        cells_[layer[k]].x = (cells_[layer[k]].x + left[k]) / 2;
      }
    }
  }
  double first = 0;
  for (const Cell& cell : cells_) first = std::min(first, cell.x - cell.width / 2);
  for (Cell& cell : cells_) cell.x += kMargin - first;
}

std::string PictureLayout::svg() const {
  double width = 0;
  for (const Cell& cell : cells_) width = std::max(width, cell.x + cell.width / 2);
  const auto top = [](size_t layer) { return kMargin + kLayerHeight * static_cast<double>(layer); };
  const double height = top(layers_.size());
  std::string text = absl::StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width + kMargin, "\" height=\"", height,
      "\" font-family=\"monospace\" font-size=\"11\" text-anchor=\"middle\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<g fill=\"none\" stroke=\"#888\">\n");
  for (const auto& path : paths_) {
    double x = cells_[path[0]].x, y = top(cells_[path[0]].layer) + kBoxHeight;
    absl::StrAppend(&text, "<path d=\"M", x, " ", y);
    for (size_t i = 1; i < path.size(); ++i) {
      const double to_x = cells_[path[i]].x, to_y = top(cells_[path[i]].layer);
      const double middle = (y + to_y) / 2;
      absl::StrAppend(&text, "C", x, " ", middle, " ", to_x, " ", middle, " ", to_x, " ", to_y);
      x = to_x;
      y = to_y;
      if (i + 1 < path.size()) {  // through a layer
        y += kBoxHeight;
        absl::StrAppend(&text, "V", y);
      }
    }
    text += "\"/>\n";
  }
  text += "</g>\n";
  for (const Cell& cell : cells_) {
    if (cell.box == SIZE_MAX) continue;
    const Box& box = drawing_.boxes[cell.box];
    const double y = top(cell.layer);
    absl::StrAppend(&text, "<rect x=\"", cell.x - cell.width / 2, "\" y=\"", y, "\" width=\"",
                    cell.width, "\" height=\"", kBoxHeight, "\" rx=\"", box.round ? 16 : 3,
                    "\" fill=\"", box.round ? "#e8f0e4" : "#e6eef8", "\" stroke=\"#555\"/>\n");
    absl::StrAppend(&text, "<text x=\"", cell.x, "\" y=\"", y + 14, "\">", xml_escaped(box.title),
                    "</text>\n<text x=\"", cell.x, "\" y=\"", y + 27, "\" fill=\"#555\">",
                    xml_escaped(box.type), "</text>\n");
  }
  return text + "</svg>\n";
}

}  // namespace

std::string to_dot(const Graph& graph) {
  const Drawing drawing = drawing_of(graph);
  std::string text = "digraph {\n  node [shape=box, fontname=monospace];\n";
  for (size_t i = 0; i < drawing.boxes.size(); ++i) {
    const Box& box = drawing.boxes[i];
    absl::StrAppend(&text, "  n", i, " [label=\"", box.title, box.type.empty() ? "" : "\\n",
                    box.type, "\"", box.round ? ", shape=ellipse" : "", "];\n");
  }
  for (const PictureEdge& edge : drawing.edges) {
    absl::StrAppend(&text, "  n", edge.from, " -> n", edge.to, ";\n");
  }
  return text + "}\n";
}

std::string to_svg(const Graph& graph) {
  const Drawing drawing = drawing_of(graph);
  return PictureLayout(drawing).svg();
}

}  // namespace mytorch::graph
