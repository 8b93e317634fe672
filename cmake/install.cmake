# `cmake --install build/release --prefix DIR` installs the library and its backends, the public headers, the
# reference pages, and a package for find_package(mytorch) with two targets:
#
#   mytorch::mytorch      the framework
#   mytorch::backend_sdk  headers for writing a backend; nothing to link
#
# pkg-config knows them as mytorch and mytorch-backend-sdk. DIR can be moved afterwards: no file in it holds an
# absolute path.

include(CMakePackageConfigHelpers)

target_compile_features(mytorch_headers INTERFACE cxx_std_20)
target_compile_features(mytorch_backend_sdk INTERFACE cxx_std_20)
set_target_properties(mytorch_headers PROPERTIES EXPORT_NAME headers)
set_target_properties(mytorch_backend_sdk PROPERTIES EXPORT_NAME backend_sdk)
foreach(target mytorch_headers mytorch_backend_sdk)
  target_include_directories(${target} INTERFACE $<INSTALL_INTERFACE:include>)
endforeach()

# Backends outside of the tree also export only the symbol that the loader looks up.
target_link_options(mytorch_backend_sdk INTERFACE
  "$<INSTALL_INTERFACE:-Wl,--version-script=$<INSTALL_PREFIX>/share/mytorch/backend.exports>")
install(FILES ${CMAKE_SOURCE_DIR}/cmake/backend.exports DESTINATION share/mytorch)

install(TARGETS mytorch mytorch_headers mytorch_backend_sdk EXPORT mytorch LIBRARY DESTINATION lib)
get_property(backends GLOBAL PROPERTY MYTORCH_BACKENDS)
foreach(backend ${backends})
  install(TARGETS ${backend} LIBRARY DESTINATION lib/mytorch/backends)
endforeach()
get_property(engines GLOBAL PROPERTY MYTORCH_ENGINES)
foreach(engine ${engines})
  install(TARGETS ${engine} LIBRARY DESTINATION lib/mytorch/comm)
endforeach()
foreach(room ${MYTORCH_ROOMS} backends/sdk)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/${room}/include/mytorch DESTINATION include)
endforeach()
foreach(folder include backend/include)
  install(DIRECTORY ${MYTORCH_GENERATED}/${folder}/mytorch DESTINATION include)
endforeach()
install(DIRECTORY ${MYTORCH_GENERATED}/docs/ops DESTINATION share/doc/mytorch)
file(GLOB pages CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/docs/*.md)
install(FILES ${pages} DESTINATION share/doc/mytorch)

install(EXPORT mytorch NAMESPACE mytorch:: FILE mytorchConfig.cmake DESTINATION lib/cmake/mytorch)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/mytorchConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/mytorchConfigVersion.cmake DESTINATION lib/cmake/mytorch)

# pkg-config's ${pcfiledir} makes these files relocatable.
foreach(package mytorch mytorch-backend-sdk)
  set(libraries "")
  set(description "Headers for writing a backend of mytorch")
  if(package STREQUAL "mytorch")
    set(libraries "Libs: -L\${libdir} -Wl,-rpath,\${libdir} -lmytorch\n")
    set(description "A deep-learning framework")
  endif()
  file(WRITE ${CMAKE_BINARY_DIR}/pkgconfig/${package}.pc
    "prefix=\${pcfiledir}/../..\nlibdir=\${prefix}/lib\n\nName: ${package}\nDescription: ${description}\n"
    "Version: ${PROJECT_VERSION}\nCflags: -I\${prefix}/include\n${libraries}")
  install(FILES ${CMAKE_BINARY_DIR}/pkgconfig/${package}.pc DESTINATION lib/pkgconfig)
endforeach()
