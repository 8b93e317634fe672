// Transforms that move pixels along a map of the plane.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/nn/data/transforms.h"
#include "nn/common/host_tensor.h"
#include "nn/data/image_view.h"
#include "nn/data/option_name.h"
#include "nn/data/split_mix.h"

namespace mytorch::nn::data::transforms {
namespace {

double radians(double degrees) { return degrees * std::numbers::pi / 180; }

// Maps a pixel (x, y) of the output to its place in the input: (m0 x + m1 y + m2, m3 x + m4 y + m5)
// / (m6 x + m7 y + m8).
using Map = std::array<double, 9>;

// Rounds half to even. Exact for magnitudes below 2^51, and without a call of the C library, which
// std::nearbyint is before SSE 4.1.
double rounded(double x) {
  constexpr double kWhole = 6755399441055744;  // 1.5 * 2^52
  return (x + kWhole) - kWhole;
}

// The pixels of one row of the output, in the input. What does not depend on the channel is
// computed once for all of them.
class Row {
 public:
  explicit Row(const ImageView& image)
      : width_(image.width),
        height_(image.height),
        x_(static_cast<size_t>(image.width)),
        y_(x_.size()),
        at_(x_.size()),
        dx_(x_.size()),
        dy_(x_.size()) {}

  void find(const Map& m, int64_t row, Interpolation interpolation) {
    const auto down = static_cast<double>(row);
    const bool affine = m[6] == 0 && m[7] == 0 && m[8] == 1;
    const double x0 = m[1] * down + m[2], y0 = m[4] * down + m[5], z0 = m[7] * down + m[8];
    for (size_t i = 0; i < x_.size(); ++i) {
      const auto right = static_cast<double>(i);
      x_[i] = m[0] * right + x0;
      y_[i] = m[3] * right + y0;
      if (affine) continue;
      const double scale = 1 / (m[6] * right + z0);
      x_[i] *= scale;
      y_[i] *= scale;
    }
    if (interpolation == Interpolation::kNearest) {
      find_nearest();
    } else {
      find_corners();
    }
  }
  template <class T>
  void nearest_pixels(const T* plane, T fill, T* to) const {
    for (size_t i = 0; i < at_.size(); ++i) to[i] = at_[i] < 0 ? fill : plane[at_[i]];
  }
  // The surroundings of the image have the value `fill`.
  template <class T>
  void interpolate(const T* plane, float fill, T* to) const {
    for (size_t i = 0; i < at_.size(); ++i) {
      if (at_[i] >= 0) [[likely]] {
        const T* at = plane + at_[i];
        to[i] = mixed<T>(i, static_cast<float>(at[0]), static_cast<float>(at[1]),
                         static_cast<float>(at[width_]), static_cast<float>(at[width_ + 1]));
      } else {
        to[i] = at_[i] == kOutside ? nearest<T>(fill) : at_border(plane, i, fill);
      }
    }
  }

 private:
  static constexpr int64_t kOutside = -1, kBorder = -2;

  // Comparisons are written so that NaN is outside.
  void find_nearest() {
    for (size_t i = 0; i < at_.size(); ++i) {
      const double column = rounded(x_[i]), row = rounded(y_[i]);
      const bool inside = column >= 0 && row >= 0 && column < static_cast<double>(width_) &&
                          row < static_cast<double>(height_);
      at_[i] =
          inside ? static_cast<int64_t>(row) * width_ + static_cast<int64_t>(column) : kOutside;
    }
  }
  // Finds the upper left one of the four pixels around each place.
  void find_corners() {
    for (size_t i = 0; i < at_.size(); ++i) {
      const double x = x_[i], y = y_[i];
      at_[i] = kOutside;
      if (!(x > -1 && y > -1 && x < static_cast<double>(width_) &&
            y < static_cast<double>(height_))) {
        continue;
      }
      const int64_t left = whole(x), top = whole(y);
      dx_[i] = static_cast<float>(x - static_cast<double>(left));
      dy_[i] = static_cast<float>(y - static_cast<double>(top));
      const bool inside = left >= 0 && top >= 0 && left + 1 < width_ && top + 1 < height_;
      at_[i] = inside ? top * width_ + left : kBorder;
    }
  }
  static int64_t whole(double place) { return static_cast<int64_t>(place + 1) - 1; }  // of > -1

  template <class T>
  T mixed(size_t i, float a, float b, float c, float d) const {
    const float dx = dx_[i], dy = dy_[i];
    return nearest<T>((1 - dy) * ((1 - dx) * a + dx * b) + dy * ((1 - dx) * c + dx * d));
  }
  template <class T>
  T at_border(const T* plane, size_t i, float fill) const {
    const int64_t left = whole(x_[i]), top = whole(y_[i]);
    const auto value = [&](int64_t row, int64_t column) {
      const bool inside = row >= 0 && column >= 0 && row < height_ && column < width_;
      return inside ? static_cast<float>(plane[row * width_ + column]) : fill;
    };
    return mixed<T>(i, value(top, left), value(top, left + 1), value(top + 1, left),
                    value(top + 1, left + 1));
  }

  int64_t width_, height_;
  std::vector<double> x_, y_;
  std::vector<int64_t> at_;  // of a pixel in its plane, kOutside or kBorder
  std::vector<float> dx_, dy_;
};

Tensor warp(const ImageView& image, const Map& map, Interpolation interpolation, double fill) {
  Tensor out = image_like(image, image.height, image.width);
  Row row(image);
  with_element(image, [&](auto element) {
    using T = decltype(element);
    const auto value = static_cast<float>(fill);
    const T* from = image.tensor.const_data<T>();
    T* to = fresh_data<T>(out);
    for (int64_t y = 0; y < image.height; ++y) {
      row.find(map, y, interpolation);
      for (int64_t c = 0; c < image.channels; ++c) {
        const T* plane = from + c * image.plane();
        T* line = to + c * image.plane() + y * image.width;
        if (interpolation == Interpolation::kNearest) {
          row.nearest_pixels(plane, nearest<T>(value), line);
        } else {
          row.interpolate(plane, value, line);
        }
      }
    }
  });
  return out;
}

void check_finite(const char* what, const char* name, double value) {
  if (!std::isfinite(value)) {
    fail(ErrorCode::kValue, "[", what, "] ", name, " is ", value, ": give a finite number");
  }
}

// The inverse of: shear, scale and rotate around the center, then translate.
Map inverse_affine(const ImageView& image, const AffineOptions& o) {
  const double turn = radians(o.angle), sx = radians(o.shear.x), sy = radians(o.shear.y);
  const double a = std::cos(turn - sy) / std::cos(sy);
  const double b = -std::cos(turn - sy) * std::tan(sx) / std::cos(sy) - std::sin(turn);
  const double c = std::sin(turn - sy) / std::cos(sy);
  const double d = -std::sin(turn - sy) * std::tan(sx) / std::cos(sy) + std::cos(turn);
  // Pixel (x, y) is the point (x + 0.5, y + 0.5).
  const Point center = o.center.has_value() ? Point{o.center->x - 0.5, o.center->y - 0.5}
                                            : Point{static_cast<double>(image.width - 1) / 2,
                                                    static_cast<double>(image.height - 1) / 2};
  const double m0 = d / o.scale, m1 = -b / o.scale, m3 = -c / o.scale, m4 = a / o.scale;
  const double x = -center.x - o.translate.x, y = -center.y - o.translate.y;
  return {m0, m1, m0 * x + m1 * y + center.x, m3, m4, m3 * x + m4 * y + center.y, 0, 0, 1};
}

Tensor affine_of(const char* what, const ImageView& view, const AffineOptions& o) {
  check_finite(what, "angle", o.angle);
  check_finite(what, "translate", o.translate.x + o.translate.y);
  if (!(o.scale > 0) || !std::isfinite(o.scale)) {
    fail(ErrorCode::kValue, "[", what, "] scale is ", o.scale, ": give a positive number");
  }
  for (const double shear : {o.shear.x, o.shear.y}) {
    if (!(std::abs(shear) < 90)) {
      fail(ErrorCode::kValue, "[", what, "] shear is ", shear, " degrees: give less than 90");
    }
  }
  return warp(view, inverse_affine(view, o), o.interpolation, o.fill);
}

// Solves the 8 equations by elimination with pivots.
Map inverse_perspective(const std::array<Point, 4>& from, const std::array<Point, 4>& to) {
  double equations[8][9];
  for (size_t i = 0; i < 4; ++i) {
    const auto [x, y] = to[i];
    const auto [u, v] = from[i];
    const double rows[2][9] = {{x, y, 1, 0, 0, 0, -u * x, -u * y, u},
                               {0, 0, 0, x, y, 1, -v * x, -v * y, v}};
    for (size_t k = 0; k < 2; ++k) std::copy_n(rows[k], 9, equations[2 * i + k]);
  }
  for (size_t i = 0; i < 8; ++i) {
    size_t pivot = i;
    for (size_t k = i + 1; k < 8; ++k) {
      if (std::abs(equations[k][i]) > std::abs(equations[pivot][i])) pivot = k;
    }
    if (!(std::abs(equations[pivot][i]) > 1e-9)) {
      fail(ErrorCode::kValue,
           "[perspective] three of the points lie on a line: give the corners of quadrilaterals");
    }
    std::swap(equations[i], equations[pivot]);
    for (size_t k = 0; k < 8; ++k) {
      if (k == i) continue;
      const double factor = equations[k][i] / equations[i][i];
      for (size_t j = i; j < 9; ++j) equations[k][j] -= factor * equations[i][j];
    }
  }
  Map map{};
  for (size_t i = 0; i < 8; ++i) map[i] = equations[i][8] / equations[i][i];
  map[8] = 1;
  return map;
}

// As torchvision, the map takes pixel (x, y) as the point (x + 0.5, y + 0.5).
Map of_pixels(const Map& m) {
  Map map = m;
  for (size_t i = 0; i < 9; i += 3) map[i + 2] += 0.5 * (m[i] + m[i + 1]);
  for (size_t i = 0; i < 3; ++i) {
    map[i] -= 0.5 * map[6 + i];
    map[3 + i] -= 0.5 * map[6 + i];
  }
  return map;
}

}  // namespace

Interpolation from_name(Str name, Interpolation /*type*/) {
  constexpr std::array kNames = {"nearest", "bilinear"};
  return static_cast<Interpolation>(index_of_name("interpolation", name, kNames));
}

Tensor rotate(const Tensor& image, double degrees, WarpOptions options) {
  return affine_of(
      "rotate", view_image("rotate", image),
      {.angle = -degrees, .interpolation = options.interpolation, .fill = options.fill});
}

Tensor affine(const Tensor& image, AffineOptions options) {
  return affine_of("affine", view_image("affine", image), options);
}

Tensor perspective(const Tensor& image, const std::array<Point, 4>& from,
                   const std::array<Point, 4>& to, WarpOptions options) {
  const ImageView view = view_image("perspective", image);
  for (const auto& points : {from, to}) {
    for (const Point& point : points) check_finite("perspective", "a point", point.x + point.y);
  }
  return warp(view, of_pixels(inverse_perspective(from, to)), options.interpolation, options.fill);
}

RandomRotation::RandomRotation(double min_degrees, double max_degrees, WarpOptions options)
    : min_degrees_(min_degrees), max_degrees_(max_degrees), options_(options) {
  check_interval("RandomRotation", "degrees", min_degrees, max_degrees, -1e6);
}

Tensor RandomRotation::operator()(const Tensor& image) const {
  SplitMix64 random = drawn_from(default_generator());
  const double angle = random.uniform(min_degrees_, max_degrees_);
  return affine_of(
      "RandomRotation", view_image("RandomRotation", image),
      {.angle = -angle, .interpolation = options_.interpolation, .fill = options_.fill});
}

RandomAffine::RandomAffine(double degrees, RandomAffineOptions options)
    : degrees_(degrees), options_(options) {
  check_interval("RandomAffine", "degrees", -degrees, degrees, -1e6);
  check_interval("RandomAffine", "scale", options.min_scale, options.max_scale, 1e-9);
  for (const double part : {options.translate.x, options.translate.y}) {
    if (!(part >= 0 && part <= 1)) {
      fail(ErrorCode::kValue, "[RandomAffine] translate is ", part,
           ": give a part of the image's side, from 0 to 1");
    }
  }
}

Tensor RandomAffine::operator()(const Tensor& image) const {
  const ImageView view = view_image("RandomAffine", image);
  SplitMix64 random = drawn_from(default_generator());
  const auto within = [&](double most) { return random.uniform(-most, most); };
  AffineOptions options{.interpolation = options_.interpolation, .fill = options_.fill};
  options.angle = within(degrees_);
  options.translate.x = std::round(within(options_.translate.x * static_cast<double>(view.width)));
  options.translate.y = std::round(within(options_.translate.y * static_cast<double>(view.height)));
  options.scale = random.uniform(options_.min_scale, options_.max_scale);
  options.shear = {within(options_.shear.x), within(options_.shear.y)};
  return affine_of("RandomAffine", view, options);
}

RandomPerspective::RandomPerspective(RandomPerspectiveOptions options) : options_(options) {
  checked_probability("RandomPerspective", options.p);
  checked_probability("RandomPerspective", options.distortion_scale);
}

Tensor RandomPerspective::operator()(const Tensor& image) const {
  const ImageView view = view_image("RandomPerspective", image);
  SplitMix64 random = drawn_from(default_generator());
  if (random.uniform() >= options_.p) return view.tensor;
  const auto inwards = [&](int64_t side) {
    const int64_t half = side / 2;  // rounded down, as torchvision's
    const auto most = static_cast<int64_t>(options_.distortion_scale * static_cast<double>(half));
    return static_cast<double>(random.below(static_cast<uint64_t>(most) + 1));
  };
  const auto right = static_cast<double>(view.width - 1);
  const auto bottom = static_cast<double>(view.height - 1);
  const std::array<Point, 4> from = {{{0, 0}, {right, 0}, {right, bottom}, {0, bottom}}};
  std::array<Point, 4> to = from;
  for (Point& point : to) {
    const double x = inwards(view.width), y = inwards(view.height);
    point.x += point.x == 0 ? x : -x;
    point.y += point.y == 0 ? y : -y;
  }
  if (view.width < 2 || view.height < 2) return view.tensor;  // the corners are no quadrilateral
  return warp(view, of_pixels(inverse_perspective(from, to)), options_.interpolation,
              options_.fill);
}

}  // namespace mytorch::nn::data::transforms
