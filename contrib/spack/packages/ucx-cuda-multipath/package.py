# SPDX-License-Identifier: BSD-3-Clause

from spack.package import *


class UcxCudaMultipath(AutotoolsPackage):
    """A CUDA transport module for UCX that sends one large GPU message over all
    paths of a node. It loads into the installed UCX. It links neither UCX nor
    CUDA: the build needs only their headers."""

    # spack -C, or "spack dev-build", on a checkout of this repository
    version("0.1.0")
    version("main", branch="main")

    variant("emulator", default=True,
            description="Emulated node, to run programs without GPUs")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("autoconf@2.69:", type="build")
    depends_on("automake@1.15:", type="build")
    depends_on("libtool", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("ucx@1.13:1.23", type="build")
    depends_on("cuda@12:", type="build")
    depends_on("libxml2", when="+emulator", type=("build", "link"))
    depends_on("python@3.6:", type="run")

    def autoreconf(self, spec, prefix):
        Executable("./autogen.sh")()

    def configure_args(self):
        spec = self.spec
        return ["--with-ucx=%s" % spec["ucx"].prefix,
                "--with-cuda=%s" % spec["cuda"].prefix,
                "--with-nvml=%s" % spec["cuda"].prefix,
                "--with-mpicc=no"]

    def setup_run_environment(self, env):
        env.prepend_path("PYTHONPATH", self.prefix.share.join("ucx-mp/python"))

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def one_checked_message(self):
        if self.spec.satisfies("+emulator"):
            Executable(self.prefix.bin.ucx_mp_run)(
                "--doctor", "--emulate", "beluga", "--ucx",
                self.spec["ucx"].prefix.lib)
