// The gradient of the weight.
#include <algorithm>

#include "backends/cpu-openmp/convolution/implicit.h"
#include "backends/cpu-openmp/convolution/layout.h"
#include "backends/cpu-openmp/scan/lines.h"

namespace mytorch::cpu {
namespace {

// weight = the sum over positions of small * big seen through windows.
template <class T>
class WeightGradient {
 public:
  WeightGradient(mt_ctx& ctx, const Geometry& g, const T* big, const T* small, T* weight)
      : ctx_(ctx),
        g_(g),
        big_(big),
        small_(small),
        weight_(weight),
        w_(windows_on_big(g)),
        layout_(w_, g.batch, g.big_channels, g.small_channels, sizeof(T)),
        panels_{g.small_channels, vector_lanes(T{})},
        tile_(row_tile(T{}, g.small_channels)) {
    // Tasks are blocks of input channels, enough of them to be worth going through `small`, which
    // each repeats; and where that makes few tasks, parts of the batch, summed in order: the same
    // bits on any number of threads.
    const int64_t fit = std::max<int64_t>(1, kImageBytes / (chunks().pitch * int64_t{sizeof(T)}));
    const int64_t wanted = std::clamp<int64_t>(g.depth() / 128, 1, kTasks);
    block_ = std::min(fit, divide_up(g.big_channels, wanted));
    blocks_ = divide_up(g.big_channels, block_);
    parts_ = std::min(chunks().count(), divide_up(kTasks, blocks_ * g.groups));
    terms_ = block_ * g.taps();
    if (layout_.rows) {
      terms_ = divide_up(terms_, tile_.steps) * tile_.steps;
      sums_ = divide_up(g.small_channels, tile_.channels) * tile_.channels * terms_ * tile_.lanes;
    } else {
      sums_ = panels_.padded() * terms_;
    }
  }

  bool run();

 private:
  using Chunk = Chunks::Chunk;

  const Chunks& chunks() const { return layout_.chunks; }
  const T* small_plane(int64_t image, int64_t group, int64_t channel) const {
    return small_ + ((image * g_.groups + group) * g_.small_channels + channel) * g_.small_plane();
  }
  void add_rows(const Chunk& chunk, int64_t group, const T* image, bool accumulate, T* sums) const;
  void add_gathered(const Chunk& chunk, int64_t group, int64_t terms, const T* image,
                    const int32_t* positions, bool accumulate, T* transposed, T* sums) const;
  void finish(int64_t group, int64_t block, const T* sums) const;

  mt_ctx& ctx_;
  const Geometry& g_;
  const T* big_;
  const T* small_;
  T* weight_;
  const Windows w_;
  const Layout layout_;
  const Panels panels_;
  const RowTile tile_;
  int64_t block_, blocks_;  // channels of `big`
  int64_t parts_;           // of the batch
  int64_t terms_;           // (c, tap) of a block, along rows in whole tiles
  int64_t sums_;            // elements, of a task
  int32_t* taps_ = nullptr;
};

template <class T>
void WeightGradient<T>::add_rows(const Chunk& chunk, int64_t group, const T* image, bool accumulate,
                                 T* sums) const {
  const Spatial& window = chunks().window;
  RowsGradient<T> p;
  p.image_pitch = window[2] * w_.step[1];
  p.step = taps_;
  p.steps = terms_;
  p.grad_plane = g_.small_plane();
  p.grad_pitch = g_.small[2];
  p.channels = g_.small_channels;
  p.rows = chunk.size[1];
  p.width = chunk.size[2];
  p.accumulate = accumulate;
  p.sums = sums;
  for (int64_t j = 0; j < chunk.images; ++j) {
    for (int64_t z = 0; z < chunk.size[0]; ++z) {
      p.image = image + (j * window[0] + z * w_.step[0]) * window[1] * window[2];
      p.grad = small_plane(chunk.image + j, group, 0) +
               w_.place({chunk.begin[0] + z, chunk.begin[1], chunk.begin[2]});
      rows_gradient(p);
      p.accumulate = true;
    }
  }
}

template <class T>
void WeightGradient<T>::add_gathered(const Chunk& chunk, int64_t group, int64_t terms,
                                     const T* image, const int32_t* positions, bool accumulate,
                                     T* transposed, T* sums) const {
  const int64_t plane = g_.small_plane();
  for (int64_t panel = 0; panel < panels_.count; ++panel) {
    const int64_t width = panels_.width(panel);
    chunks().for_each_run(
        w_, chunk, [&](int64_t position, int64_t place, int64_t length, int64_t j) {
          transpose(small_plane(chunk.image + j, group, panels_.first(panel)) + place, plane,
                    panels_.real(panel), length, transposed + position * width, width);
        });
    Gathered<T> p;
    p.image = image;
    p.place = taps_;
    p.rows = terms;
    p.step = positions;
    p.steps = chunk.positions();
    p.panel = transposed;
    p.vectors = panels_.units(panel);
    p.start = nullptr;
    p.accumulate = accumulate;
    p.out = sums + panels_.first(panel) * terms_;
    gathered_product(p);
  }
}

// A block's sums to where they belong.
template <class T>
void WeightGradient<T>::finish(int64_t group, int64_t block, const T* sums) const {
  const int64_t depth = g_.depth();
  const int64_t first = block * block_ * g_.taps();
  const int64_t terms = std::min(block_ * g_.taps(), depth - first);
  T* to = weight_ + group * g_.small_channels * depth + first;
  if (!layout_.rows) {
    for (int64_t panel = 0; panel < panels_.count; ++panel) {
      const int64_t o = panels_.first(panel);
      transpose(sums + o * terms_, panels_.width(panel), terms, panels_.real(panel), to + o * depth,
                depth);
    }
    return;
  }
  for (int64_t o = 0; o < g_.small_channels; o += tile_.channels) {
    for (int64_t s = 0; s < terms_; s += tile_.steps) {
      for (int64_t i = 0; i < tile_.channels; ++i, sums += tile_.steps * tile_.lanes) {
        const int64_t n = std::min(tile_.steps, terms - s);
        if (o + i < g_.small_channels && n > 0) sum_lanes(sums, n, to + (o + i) * depth + s);
      }
    }
  }
}

template <class T>
bool WeightGradient<T>::run() {
  if (block_ * chunks().pitch * int64_t{sizeof(T)} > kMostImageBytes) return false;
  taps_ = sdk::scratch<int32_t>(ctx_, terms_);
  chunks().taps(w_, block_, taps_);
  for (int64_t i = block_ * g_.taps(); i < terms_; ++i) taps_[i] = taps_[0];
  T* const sums = sdk::scratch<T>(ctx_, parts_ * g_.groups * blocks_ * sums_);

  const int64_t image_size = block_ * chunks().pitch + kRowSlack;
  const int64_t positions = layout_.rows ? 0 : chunks().most_positions();
  const int64_t transposed_size = positions * 2 * panels_.unit;
  const int64_t table = divide_up(positions * int64_t{sizeof(int32_t)}, sizeof(T));
  const int64_t big_channels = g_.groups * g_.big_channels;
  parallel_with_scratch<T>(
      ctx_, parts_ * g_.groups * blocks_, 1, image_size + transposed_size + table,
      [&](T* image, int64_t begin, int64_t end) {
        T* const transposed = image + image_size;
        std::fill(transposed, transposed + transposed_size, T{});
        Positions places(w_, chunks(), reinterpret_cast<int32_t*>(transposed + transposed_size));
        for (int64_t task = begin; task < end; ++task) {
          const int64_t c0 = task % blocks_ * block_;
          const int64_t c1 = std::min(c0 + block_, g_.big_channels);
          const int64_t group = task / blocks_ % g_.groups;
          const int64_t part = task / blocks_ / g_.groups;
          const int64_t first = chunks().count() * part / parts_;
          const int64_t last = chunks().count() * (part + 1) / parts_;
          for (int64_t i = first; i < last; ++i) {
            const Chunk chunk = chunks().chunk(w_, i);
            lay_out(w_, chunks(), chunk,
                    big_ + (chunk.image * big_channels + group * g_.big_channels) * g_.big_plane(),
                    big_channels * g_.big_plane(), c0, c1, image);
            if (layout_.rows) {
              add_rows(chunk, group, image, i > first, sums + task * sums_);
            } else {
              add_gathered(chunk, group, (c1 - c0) * g_.taps(), image, places.of(chunk), i > first,
                           transposed, sums + task * sums_);
            }
          }
        }
      });

  const int64_t results = g_.groups * blocks_;
  sdk::parallel_for(ctx_, 0, results, 1 + 65536 / (parts_ * sums_),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        T* total = sums + i * sums_;
                        for (int64_t part = 1; part < parts_; ++part) {
                          add_to(total, total + part * results * sums_, sums_);
                        }
                        finish(i / blocks_, i % blocks_, total);
                      }
                    });
  return true;
}

}  // namespace

template <class T>
bool implicit_weight(mt_ctx& ctx, const Geometry& g, const T* big, const T* small, T* weight) {
  return WeightGradient<T>(ctx, g, big, small, weight).run();
}

template bool implicit_weight<float>(mt_ctx&, const Geometry&, const float*, const float*, float*);
template bool implicit_weight<double>(mt_ctx&, const Geometry&, const double*, const double*,
                                      double*);

}  // namespace mytorch::cpu
