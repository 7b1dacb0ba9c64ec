/* layout_headers.h - all headers of the ABI;
 * made from sdk/include/moorage by tools/abi_tables; do not edit. */
#include <moorage/base.h>
#include <moorage/host.h>
#include <moorage/machine.h>
#include <moorage/module.h>
#include <moorage/step.h>
#include <moorage/router.h>
#include <moorage/cache.h>
#include <moorage/budget.h>
#include <moorage/prefetch.h>
#include <moorage/dispatch.h>
#include <moorage/placement.h>
#include <moorage/transport.h>
#include <moorage/wire.h>
