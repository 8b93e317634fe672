// Tensors as text: nested brackets, columns aligned, long lines wrapped, long dimensions
// abbreviated.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/contiguous.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/view_as_real.h"
#include "mytorch/print_options.h"
#include "mytorch/tensor.h"

namespace mytorch {
namespace {

std::mutex mutex;
PrintOptions current;

int line_width(const PrintOptions& options) {
  if (options.line_width > 0) return options.line_width;
  winsize window{};
  if (isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 &&
      window.ws_col >= 20) {
    return window.ws_col;
  }
  return 80;
}

// Returns the elements that are shown: both ends of each dimension that is abbreviated.
Tensor shown(Tensor x, int64_t edge) {
  for (int64_t d = 0; d < x.dim(); ++d) {
    const int64_t size = x.size(d);
    if (size > 2 * edge) x = cat({narrow(x, d, 0, edge), narrow(x, d, size - edge, edge)}, d);
  }
  return x;
}

// Formats numbers as PyTorch and NumPy do: all in one notation, `1.` for whole floats.
class NumberFormat {
 public:
  NumberFormat(const std::vector<double>& values, const PrintOptions& options)
      : precision_(options.precision) {
    double least = HUGE_VAL;
    double most = 0;
    for (const double value : values) {
      const double size = std::abs(value);
      if (!std::isfinite(value)) continue;
      whole_ = whole_ && value == std::trunc(value);
      if (size != 0) least = std::min(least, size);
      most = std::max(most, size);
    }
    const bool wide_range = most > 0 && (most / least > 1000 || most > 1e8);
    scientific_ = options.sci_mode.value_or(wide_range || (!whole_ && least < 1e-4));
    if (whole_ && !options.sci_mode.has_value()) scientific_ = wide_range && most > 1e8;
  }

  std::string operator()(double value) const {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    if (scientific_) return absl::StrFormat("%.*e", precision_, value);
    if (whole_) return absl::StrFormat("%.0f.", value);
    return absl::StrFormat("%.*f", precision_, value);
  }

 private:
  int precision_;
  bool whole_ = true;
  bool scientific_ = false;
};

class Printer {
 public:
  Printer(const Tensor& x, const PrintOptions& options, size_t indent)
      : sizes_(x.sizes().vec()),
        edge_(x.numel() > options.threshold ? options.edge_items : -1),
        indent_(indent) {
    const NoGradGuard no_grad;
    const Tensor part = edge_ < 0 ? x : shown(x, edge_);
    cells_ = cells(contiguous(to(part, kCPU)), options);
    for (const std::string& cell : cells_) width_ = std::max(width_, cell.size());
    const size_t room = static_cast<size_t>(line_width(options));
    const size_t used = indent + sizes_.size();
    per_line_ = std::max<size_t>(1, (room > used ? room - used : 0) / (width_ + 2));
  }
  std::string str() {
    next_ = 0;
    return sizes_.empty() ? cells_[0] : block(0);
  }

 private:
  static std::vector<std::string> cells(const Tensor& x, const PrintOptions& options) {
    std::vector<std::string> found;
    if (x.is_complex()) {
      // The parts have a format of their own each, as in PyTorch.
      const std::vector<double> values = view_as_real(x).to_vector<double>();
      std::vector<double> parts[2];
      for (size_t i = 0; i < values.size(); ++i) parts[i % 2].push_back(values[i]);
      const NumberFormat real(parts[0], options);
      const NumberFormat imaginary(parts[1], options);
      for (size_t i = 0; i < parts[0].size(); ++i) {
        const double y = parts[1][i];
        found.push_back(absl::StrCat(real(parts[0][i]),
                                     std::signbit(y) && !std::isnan(y) ? "-" : "+",
                                     imaginary(std::abs(y)), "j"));
      }
    } else if (x.is_floating_point()) {
      const std::vector<double> values = x.to_vector<double>();
      const NumberFormat format(values, options);
      for (const double value : values) found.push_back(format(value));
    } else {
      for (const int64_t value : x.to_vector<int64_t>()) {
        found.push_back(x.dtype() == kBool ? (value != 0 ? "true" : "false") : absl::StrCat(value));
      }
    }
    return found;
  }

  std::string block(size_t dim) {
    const int64_t size = sizes_[dim];
    const bool cut = edge_ >= 0 && size > 2 * edge_;
    const bool last = dim + 1 == sizes_.size();
    // Blocks of two dimensions or more are set apart by empty lines.
    const std::string line = absl::StrCat("\n", std::string(indent_ + dim + 1, ' '));
    const std::string between =
        last ? ", " : absl::StrCat(",", std::string(sizes_.size() - dim - 2, '\n'), line);
    std::string text = "[";
    size_t on_line = 0;
    const auto put = [&](const std::string& part) {
      if (text.size() > 1) {
        if (last && on_line == per_line_) {
          absl::StrAppend(&text, ",", line);
          on_line = 0;
        } else {
          text += between;
        }
      }
      text += part;
      ++on_line;
    };
    for (int64_t i = 0; i < size; ++i) {
      if (cut && i == edge_) {
        put("...");
        i = size - edge_;
        if (i == size) break;
      }
      put(last ? cell() : block(dim + 1));
    }
    return text + "]";
  }

  std::string cell() {
    std::string text = cells_[next_++];
    text.insert(0, width_ - text.size(), ' ');
    return text;
  }

  std::vector<int64_t> sizes_;
  int64_t edge_;  // -1: nothing is abbreviated
  size_t indent_;
  std::vector<std::string> cells_;  // of the elements shown, in row-major order
  size_t next_ = 0;
  size_t width_ = 0;
  size_t per_line_ = 1;
};

}  // namespace

void set_print_options(const PrintOptions& options) {
  if (options.precision < 0 || options.precision > 100 || options.threshold < 0 ||
      options.edge_items < 0 || options.edge_items > 1000000 || options.line_width < 0) {
    fail(ErrorCode::kValue,
         "[set_print_options] the options must not be negative, the precision at most 100, and the "
         "edge items at most 1000000");
  }
  const std::lock_guard lock(mutex);
  current = options;
}

PrintOptions print_options() {
  const std::lock_guard lock(mutex);
  return current;
}

std::string Tensor::str() const {
  if (!defined()) return "tensor(undefined)";
  std::string text = "tensor(";
  text += Printer(*this, print_options(), text.size()).str();
  absl::StrAppend(&text, ", shape=", shape_str(sizes()), ", dtype=", dtype_name(dtype()));
  if (!device().is_cpu()) absl::StrAppend(&text, ", device=", device().str());
  if (requires_grad()) text += ", requires_grad";
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << tensor.str(); }

}  // namespace mytorch
