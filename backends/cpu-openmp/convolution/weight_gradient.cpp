// The gradient of the weight.
#include <algorithm>

#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/convolution/blocking.h"
#include "backends/cpu-openmp/convolution/implicit_gemm.h"

namespace mytorch::cpu {
namespace {

// weight = the sum over positions of output * window of the input.
template <class T>
class WeightGradient {
 public:
  WeightGradient(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, const T* input, const T* output,
                 T* weight)
      : ctx_(ctx),
        g_(g),
        input_(input),
        output_(output),
        weight_(weight),
        w_(windows_on_input(g)),
        blocking_(w_, g.batch, g.in_channels, g.out_channels, sizeof(T)),
        panels_{g.out_channels, implicit_microkernels<T>().lanes()},
        tile_(direct_microkernels<T>().tile(g.out_channels)) {
    // Tasks are blocks of input channels, large enough to justify reading the whole `output`. If
    // there are few blocks, the batch is also split, into parts that are summed in order: the bits
    // do not depend on the number of threads.
    const int64_t fit = std::max<int64_t>(1, kInputBytes / (chunks().pitch * int64_t{sizeof(T)}));
    const int64_t wanted = std::clamp<int64_t>(g.depth() / 128, 1, kTasks);
    block_ = std::min(fit, divide_up(g.in_channels, wanted));
    blocks_ = divide_up(g.in_channels, block_);
    parts_ = std::min(chunks().count(), divide_up(kTasks, blocks_ * g.groups));
    terms_ = block_ * g.taps();
    if (blocking_.direct) {
      terms_ = divide_up(terms_, tile_.steps) * tile_.steps;
      sums_ = divide_up(g.out_channels, tile_.channels) * tile_.channels * terms_ * tile_.lanes;
    } else {
      sums_ = panels_.padded() * terms_;
    }
  }

  bool run();

 private:
  using Chunk = Chunks::Chunk;

  const Chunks& chunks() const { return blocking_.chunks; }
  const T* output_plane(int64_t sample, int64_t group, int64_t channel) const {
    return output_ + ((sample * g_.groups + group) * g_.out_channels + channel) * g_.output_plane();
  }
  void add_direct(const Chunk& chunk, int64_t group, const T* padded, bool accumulate,
                  T* sums) const;
  void add_implicit(const Chunk& chunk, int64_t group, int64_t terms, const T* padded,
                    const int32_t* positions, bool accumulate, T* transposed, T* sums) const;
  void finish(int64_t group, int64_t block, const T* sums) const;

  mt_ctx& ctx_;
  const sdk::ConvolutionGeometry& g_;
  const T* input_;
  const T* output_;
  T* weight_;
  const Windows w_;
  const Blocking blocking_;
  const Panels panels_;
  const DirectTile tile_;
  int64_t block_, blocks_;  // channels of `input`
  int64_t parts_;           // of the batch
  int64_t terms_;           // (c, tap) pairs of a block; whole tiles if direct
  int64_t sums_;            // elements of a task's sums
  int32_t* taps_ = nullptr;
};

template <class T>
void WeightGradient<T>::add_direct(const Chunk& chunk, int64_t group, const T* padded,
                                   bool accumulate, T* sums) const {
  const Spatial& window = chunks().window;
  DirectGradient<T> p;
  p.input_pitch = window[2] * w_.step[1];
  p.step = taps_;
  p.steps = terms_;
  p.grad_plane = g_.output_plane();
  p.grad_pitch = g_.output[2];
  p.channels = g_.out_channels;
  p.rows = chunk.size[1];
  p.width = chunk.size[2];
  p.accumulate = accumulate;
  p.sums = sums;
  const auto gradient = direct_microkernels<T>().gradient;
  for (int64_t j = 0; j < chunk.samples; ++j) {
    for (int64_t z = 0; z < chunk.size[0]; ++z) {
      p.input = padded + (j * window[0] + z * w_.step[0]) * window[1] * window[2];
      p.grad = output_plane(chunk.sample + j, group, 0) +
               w_.place({chunk.begin[0] + z, chunk.begin[1], chunk.begin[2]});
      gradient(p);
      p.accumulate = true;
    }
  }
}

template <class T>
void WeightGradient<T>::add_implicit(const Chunk& chunk, int64_t group, int64_t terms,
                                     const T* padded, const int32_t* positions, bool accumulate,
                                     T* transposed, T* sums) const {
  const int64_t plane = g_.output_plane();
  const ImplicitMicrokernels<T>& microkernels = implicit_microkernels<T>();
  for (int64_t panel = 0; panel < panels_.count; ++panel) {
    const int64_t width = panels_.width(panel);
    chunks().for_each_run(
        w_, chunk, [&](int64_t position, int64_t place, int64_t length, int64_t j) {
          microkernels.transpose(
              output_plane(chunk.sample + j, group, panels_.first(panel)) + place, plane,
              panels_.real(panel), length, transposed + position * width, width);
        });
    ImplicitProduct<T> p;
    p.input = padded;
    p.place = taps_;
    p.rows = terms;
    p.step = positions;
    p.steps = chunk.positions();
    p.panel = transposed;
    p.vectors = panels_.units(panel);
    p.start = nullptr;
    p.accumulate = accumulate;
    p.out = sums + panels_.first(panel) * terms_;
    microkernels.product(p);
  }
}

// Copies a block's sums to the weight.
template <class T>
void WeightGradient<T>::finish(int64_t group, int64_t block, const T* sums) const {
  const int64_t depth = g_.depth();
  const int64_t first = block * block_ * g_.taps();
  const int64_t terms = std::min(block_ * g_.taps(), depth - first);
  T* to = weight_ + group * g_.out_channels * depth + first;
  if (!blocking_.direct) {
    for (int64_t panel = 0; panel < panels_.count; ++panel) {
      const int64_t o = panels_.first(panel);
      implicit_microkernels<T>().transpose(sums + o * terms_, panels_.width(panel), terms,
                                           panels_.real(panel), to + o * depth, depth);
    }
    return;
  }
  for (int64_t o = 0; o < g_.out_channels; o += tile_.channels) {
    for (int64_t s = 0; s < terms_; s += tile_.steps) {
      for (int64_t i = 0; i < tile_.channels; ++i, sums += tile_.steps * tile_.lanes) {
        const int64_t n = std::min(tile_.steps, terms - s);
        if (o + i < g_.out_channels && n > 0)
          direct_microkernels<T>().sum_lanes(sums, n, to + (o + i) * depth + s);
      }
    }
  }
}

template <class T>
bool WeightGradient<T>::run() {
  if (!blocking_.fits(block_, sizeof(T))) return false;
  taps_ = sdk::scratch<int32_t>(ctx_, terms_);
  chunks().taps(w_, block_, taps_);
  for (int64_t i = block_ * g_.taps(); i < terms_; ++i) taps_[i] = taps_[0];
  T* const sums = sdk::scratch<T>(ctx_, parts_ * g_.groups * blocks_ * sums_);

  const int64_t padded_size = block_ * chunks().pitch + kDirectSlack;
  const int64_t positions = blocking_.direct ? 0 : chunks().most_positions();
  const int64_t transposed_size = positions * 2 * panels_.unit;
  const int64_t table = divide_up(positions * int64_t{sizeof(int32_t)}, sizeof(T));
  const int64_t in_channels = g_.groups * g_.in_channels;
  parallel_with_scratch<T>(
      ctx_, parts_ * g_.groups * blocks_, 1, padded_size + transposed_size + table,
      [&](T* padded, int64_t begin, int64_t end) {
        T* const transposed = padded + padded_size;
        std::fill(transposed, transposed + transposed_size, T{});
        Positions places(w_, chunks(), reinterpret_cast<int32_t*>(transposed + transposed_size));
        for (int64_t task = begin; task < end; ++task) {
          const int64_t c0 = task % blocks_ * block_;
          const int64_t c1 = std::min(c0 + block_, g_.in_channels);
          const int64_t group = task / blocks_ % g_.groups;
          const int64_t part = task / blocks_ / g_.groups;
          const int64_t first = chunks().count() * part / parts_;
          const int64_t last = chunks().count() * (part + 1) / parts_;
          for (int64_t i = first; i < last; ++i) {
            const Chunk chunk = chunks().chunk(w_, i);
            copy_padded(
                w_, chunks(), chunk,
                input_ + (chunk.sample * in_channels + group * g_.in_channels) * g_.input_plane(),
                in_channels * g_.input_plane(), c0, c1, padded);
            if (blocking_.direct) {
              add_direct(chunk, group, padded, i > first, sums + task * sums_);
            } else {
              add_implicit(chunk, group, (c1 - c0) * g_.taps(), padded, places.of(chunk), i > first,
                           transposed, sums + task * sums_);
            }
          }
        }
      });

  const int64_t results = g_.groups * blocks_;
  sdk::parallel_for(
      ctx_, 0, results, 1 + 65536 / (parts_ * sums_), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          T* total = sums + i * sums_;
          for (int64_t part = 1; part < parts_; ++part) {
            implicit_microkernels<T>().add_to(total, total + part * results * sums_, sums_);
          }
          finish(i / blocks_, i % blocks_, total);
        }
      });
  return true;
}

}  // namespace

template <class T>
bool implicit_backward_weight(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, const T* input,
                              const T* output, T* weight) {
  return WeightGradient<T>(ctx, g, input, output, weight).run();
}

template bool implicit_backward_weight<float>(mt_ctx&, const sdk::ConvolutionGeometry&,
                                              const float*, const float*, float*);
template bool implicit_backward_weight<double>(mt_ctx&, const sdk::ConvolutionGeometry&,
                                               const double*, const double*, double*);

}  // namespace mytorch::cpu
