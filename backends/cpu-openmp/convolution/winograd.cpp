#include "backends/cpu-openmp/convolution/winograd.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/convolution/blocking.h"
#include "backends/cpu-openmp/convolution/implicit_microkernel.h"
#include "backends/cpu-openmp/convolution/winograd_transforms.h"

namespace mytorch::cpu {
namespace {

constexpr int64_t kElements = 16;  // of a transformed tile
constexpr int64_t kTaps = 9;

// The tiles of a grid, as windows of 4 x 4 elements that are 2 apart.
Windows tiles_of(const Windows& w) {
  Windows tiles = w;
  for (size_t d = 1; d < 3; ++d) {
    tiles.grid[d] = divide_up(w.grid[d], 2);
    tiles.step[d] = 2;
    tiles.reach[d] = 3;
  }
  return tiles;
}

// Chunks whose transformed tiles and products stay in the L2, and enough of them for many threads.
Chunks chunks_of(const Windows& tiles, const WinogradProblem& p) {
  constexpr int64_t kFew = 12, kMany = 48;
  int64_t wanted = std::clamp(24576 / (p.in + p.out), kFew, kMany);
  Chunks chunks(tiles, p.batch, wanted);
  while (chunks.count() * p.groups < kTasks && wanted > kFew) {
    wanted /= 2;
    chunks = Chunks(tiles, p.batch, wanted);
  }
  return chunks;
}

class Winograd {
 public:
  Winograd(mt_ctx& ctx, const WinogradProblem& problem)
      : ctx_(ctx),
        p_(problem),
        tiles_(tiles_of(problem.windows)),
        chunks_(chunks_of(tiles_, problem)),
        panels_{problem.out, functions_.lanes()} {}

  bool run() {
    transform_weights();
    const int64_t padded = panels_.padded();
    starts_ = sdk::scratch<float>(ctx_, p_.groups * padded);
    std::fill_n(starts_, p_.groups * padded, 0.0f);
    for (int64_t group = 0; group < p_.groups && p_.bias != nullptr; ++group) {
      std::copy_n(p_.bias + group * p_.out, p_.out, starts_ + group * padded);
    }
    places_ = sdk::scratch<int32_t>(ctx_, tiles());
    for (int64_t i = 0; i < tiles(); ++i) places_[i] = static_cast<int32_t>(i);
    steps_ = sdk::scratch<int32_t>(ctx_, p_.in);
    for (int64_t c = 0; c < p_.in; ++c) steps_[c] = static_cast<int32_t>(c * pitch());
    const int64_t copied = block() * chunks_.pitch + kWinogradSlack;
    const int64_t rows = 4 * (2 * chunks_.box[2] + kWinogradSlack);
    const int64_t results = 4 * chunks_.box[2] * 2 * panels_.unit;
    const int64_t transformed = kElements * p_.in * pitch() + kWinogradSlack;
    parallel_with_scratch<float>(
        ctx_, chunks_.count() * p_.groups, 1,
        copied + rows + results + transformed + kElements * products_pitch(),
        [&](float* memory, int64_t begin, int64_t end) {
          Memory m{memory, memory + copied, memory + copied + rows,
                   memory + copied + rows + results, nullptr};
          m.products = m.transformed + transformed;
          for (int64_t task = begin; task < end && finite_; ++task) {
            const int64_t group = task % p_.groups;
            const Chunks::Chunk chunk = chunks_.chunk(tiles_, task / p_.groups);
            transform_inputs(chunk, group, m);
            multiply(chunk, group, m);
            transform_outputs(chunk, group, m);
          }
        });
    return finite_;
  }

 private:
  // Of a worker.
  struct Memory {
    float* copied;       // [channel of a block][sample][row][column], padded
    float* rows;         // of a tile row
    float* results;      // of a tile row, [row][column][lane]
    float* transformed;  // [element][channel][tile]
    float* products;     // [element][panel][tile][lane]
  };

  int64_t tiles() const { return chunks_.most_positions(); }  // of a chunk
  // Whole vectors are stored beyond the last tile of a channel.
  int64_t pitch() const { return divide_up(tiles(), 16) * 16 + 16; }
  int64_t products_pitch() const { return tiles() * panels_.padded(); }
  int64_t weights_pitch() const { return p_.in * panels_.padded(); }
  // Channels that are copied at a time, in the L1.
  int64_t block() const { return std::clamp<int64_t>(8192 / chunks_.pitch, 1, p_.in); }
  float* weights(int64_t group, int64_t element, int64_t panel) const {
    return weights_ + (group * kElements + element) * weights_pitch() +
           p_.in * panels_.first(panel);
  }
  const float* start(int64_t group, int64_t panel) const {
    return starts_ + group * panels_.padded() + panels_.first(panel);
  }

  void transform_weights() {
    constexpr int64_t kBlock = 32;  // channels
    weights_ = sdk::scratch<float>(ctx_, p_.groups * kElements * weights_pitch());
    int64_t order[kTaps];
    for (const Windows::Tap& tap : p_.windows.taps) {
      order[3 * tap.at[1] + tap.at[2]] = tap.index;
    }
    const int64_t blocks = divide_up(p_.in, kBlock);
    parallel_with_scratch<float>(
        ctx_, p_.groups * panels_.count * blocks, 4, kBlock * kTaps * 2 * panels_.unit,
        [&](float* taps, int64_t begin, int64_t end) {
          for (int64_t task = begin; task < end; ++task) {
            const int64_t group = task / blocks / panels_.count;
            const int64_t panel = task / blocks % panels_.count;
            const int64_t first = task % blocks * kBlock;
            const int64_t count = std::min(kBlock, p_.in - first);
            const int64_t width = panels_.width(panel), real = panels_.real(panel);
            const float* from = p_.weight + group * p_.group_stride +
                                panels_.first(panel) * p_.out_stride + first * p_.in_stride;
            if (real < width) std::fill_n(taps, count * kTaps * width, 0.0f);
            if (p_.in_stride == kTaps) {
              functions_.transpose(from, p_.out_stride, real, count * kTaps, taps, width);
            } else {
              for (int64_t c = 0; c < count; ++c) {
                functions_.transpose(from + c * p_.in_stride, p_.out_stride, real, kTaps,
                                     taps + c * kTaps * width, width);
              }
            }
            transforms_.weight(taps, order, count, width, weights(group, 0, panel) + first * width,
                               weights_pitch());
          }
        });
  }

  void transform_inputs(const Chunks::Chunk& chunk, int64_t group, const Memory& m) const {
    const int64_t plane = volume(tiles_.source);
    const float* from = p_.source + (chunk.sample * p_.groups + group) * p_.in * plane;
    for (int64_t first = 0; first < p_.in; first += block()) {
      const int64_t last = std::min(first + block(), p_.in);
      copy_padded(tiles_, chunks_, chunk, from, p_.groups * p_.in * plane, first, last, m.copied);
      for (int64_t c = first; c < last; ++c) {
        float* to = m.transformed + c * pitch();
        for (int64_t j = 0; j < chunk.samples; ++j) {
          const float* at =
              m.copied + (c - first) * chunks_.pitch + j * chunks_.window[1] * chunks_.window[2];
          for (int64_t y = 0; y < chunk.size[1]; ++y) {
            transforms_.input(at, chunks_.window[2], chunk.size[2], to, p_.in * pitch(), m.rows);
            at += 2 * chunks_.window[2];
            to += chunk.size[2];
          }
        }
      }
    }
  }

  void multiply(const Chunks::Chunk& chunk, int64_t group, const Memory& m) const {
    ImplicitProduct<float> product{};
    product.place = places_;
    product.rows = chunk.positions();
    product.step = steps_;
    product.steps = p_.in;
    for (int64_t k = 0; k < kElements; ++k) {
      product.input = m.transformed + k * p_.in * pitch();
      for (int64_t panel = 0; panel < panels_.count; ++panel) {
        product.panel = weights(group, k, panel);
        product.vectors = panels_.units(panel);
        product.out = m.products + k * products_pitch() + tiles() * panels_.first(panel);
        functions_.product(product);
      }
    }
  }

  void transform_outputs(const Chunks::Chunk& chunk, int64_t group, const Memory& m) {
    const Windows& w = p_.windows;
    const int64_t plane = volume(w.target), columns = 2 * chunk.size[2];
    const int64_t y0 = 2 * chunk.begin[1], x0 = 2 * chunk.begin[2];
    const int64_t length = std::min(columns, w.grid[2] - x0);
    bool finite = true;
    for (int64_t panel = 0; panel < panels_.count; ++panel) {
      const int64_t width = panels_.width(panel), real = panels_.real(panel);
      const float* from = m.products + tiles() * panels_.first(panel);
      for (int64_t j = 0; j < chunk.samples; ++j) {
        float* const to =
            p_.target +
            (((chunk.sample + j) * p_.groups + group) * p_.out + panels_.first(panel)) * plane;
        for (int64_t y = 0; y < chunk.size[1]; ++y) {
          const bool row_finite = transforms_.output(from, products_pitch(), chunk.size[2], width,
                                                     start(group, panel), m.results);
          finite = finite && row_finite;
          from += chunk.size[2] * width;
          for (int64_t i = 0; i < 2 && y0 + 2 * y + i < w.grid[1]; ++i) {
            functions_.transpose(m.results + i * columns * width, width, length, real,
                                 to + w.place({0, y0 + 2 * y + i, x0}), plane);
          }
        }
      }
    }
    if (!finite) finite_ = false;
  }

  mt_ctx& ctx_;
  const WinogradProblem& p_;
  const ImplicitMicrokernels<float>& functions_ = implicit_microkernels<float>();
  const WinogradTransforms& transforms_ = winograd_transforms();
  const Windows tiles_;
  const Chunks chunks_;
  const Panels panels_;
  float* weights_ = nullptr;  // [group][element][panel][channel][lane]
  float* starts_ = nullptr;   // [group][padded channel]: the bias, or zeros
  int32_t* places_ = nullptr;
  int32_t* steps_ = nullptr;
  std::atomic<bool> finite_ = true;
};

}  // namespace

bool allows_winograd() {
  static const bool allowed = [] {
    const char* text = std::getenv("MYTORCH_CPU_WINOGRAD");
    return text == nullptr || std::strcmp(text, "0") != 0;
  }();
  return allowed;
}

bool winograd(mt_ctx& ctx, const WinogradProblem& problem) { return Winograd(ctx, problem).run(); }

}  // namespace mytorch::cpu
