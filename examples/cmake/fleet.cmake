# fleet.cmake - the headers as the target fleet::fleet, for HIP, CUDA or C (the CPU) - MIT licence
#
# In a project, after enable_language of what compiles the kernels (3.21 or later; HIP, CUDA or C):
#
#     include(third_party/fleet/fleet.cmake)           copied beside the three headers and stb_ds.h, or beside fleet_all.h
#
#     include(FetchContent)                            or from the tree of fleet, which has no CMakeLists.txt
#     FetchContent_Declare(fleet GIT_REPOSITORY ... GIT_TAG ...)
#     FetchContent_MakeAvailable(fleet)
#     include(${fleet_SOURCE_DIR}/examples/cmake/fleet.cmake)
#
#     add_executable(app main.c megakernel.c)
#     fleet_sources(app megakernel.c)                  the files with kernels, and the one with FLEET_IMPLEMENTATION
#     target_link_libraries(app PRIVATE fleet::fleet)
#
# FLEET_LANGUAGE: HIP, CUDA or C. Default: the first of them that the project has enabled, C last.
if(TARGET fleet::fleet)
    return()
endif()

if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/fleet.h OR EXISTS ${CMAKE_CURRENT_LIST_DIR}/fleet_all.h)
    set(FLEET_ROOT ${CMAKE_CURRENT_LIST_DIR})
else()
    get_filename_component(FLEET_ROOT ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
endif()
if(NOT EXISTS ${FLEET_ROOT}/fleet.h AND NOT EXISTS ${FLEET_ROOT}/fleet_all.h)
    message(FATAL_ERROR "fleet.cmake: no fleet.h and no fleet_all.h in ${FLEET_ROOT}: copy fleet.cmake beside the headers")
endif()

get_property(fleet_enabled GLOBAL PROPERTY ENABLED_LANGUAGES)
if(NOT FLEET_LANGUAGE)
    foreach(fleet_language C CUDA HIP)
        if(fleet_language IN_LIST fleet_enabled)
            set(FLEET_LANGUAGE ${fleet_language})
        endif()
    endforeach()
endif()
if(NOT FLEET_LANGUAGE MATCHES "^(HIP|CUDA|C)$")
    message(FATAL_ERROR "fleet.cmake: FLEET_LANGUAGE is '${FLEET_LANGUAGE}': HIP, CUDA, or C for the CPU")
endif()
if(NOT FLEET_LANGUAGE IN_LIST fleet_enabled)
    message(FATAL_ERROR "fleet.cmake: call enable_language(${FLEET_LANGUAGE}) before it is included")
endif()

find_package(Threads REQUIRED)
add_library(fleet INTERFACE)
add_library(fleet::fleet ALIAS fleet)
target_include_directories(fleet INTERFACE ${FLEET_ROOT})
target_link_libraries(fleet INTERFACE Threads::Threads)
# The single file has stb_ds.h inside.
if(EXISTS ${FLEET_ROOT}/fleet.h AND NOT EXISTS ${FLEET_ROOT}/stb_ds.h)
    find_path(FLEET_STB_DS stb_ds.h PATH_SUFFIXES stb DOC "folder of stb_ds.h (github.com/nothings/stb, Debian: libstb-dev)")
    if(NOT FLEET_STB_DS)
        message(FATAL_ERROR "fleet.cmake: stb_ds.h is not found: put it beside fleet.h, or set FLEET_STB_DS to its folder")
    endif()
    target_include_directories(fleet SYSTEM INTERFACE ${FLEET_STB_DS})
endif()

# fleet_sources(TARGET FILE...): these files are compiled as FLEET_LANGUAGE, as C11 where that is C.
function(fleet_sources target)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE ${FLEET_LANGUAGE})
    if(FLEET_LANGUAGE STREQUAL C)
        set_target_properties(${target} PROPERTIES C_STANDARD 11)
    endif()
endfunction()
