// std::function. <functional> has much beside it, hash tables among others, and costs each file
// that includes it as much as all operators: libstdc++'s own headers take this part of it, too.
#pragma once

#if __has_include(<bits/std_function.h>)
#include <bits/std_function.h>  // IWYU pragma: export

#include <new>
#include <utility>
#else
#include <functional>  // IWYU pragma: export

#include "mytorch/std_function.h"
#endif
