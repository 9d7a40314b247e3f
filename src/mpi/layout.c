/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/layout.h>
#include <mpi/pmpi.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>


/* Attribute of a datatype with its ucx_mp_mpi_element_t */
static struct {
    pthread_mutex_t lock;
    bool            has_keyval;
    int             keyval;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

ucx_mp_mpi_limit_t ucx_mp_mpi_limits[UCX_MP_MPI_NUM_LIMITS];


void ucx_mp_mpi_layout_release(ucx_mp_mpi_element_t *element)
{
    if ((element == NULL) ||
        (__atomic_sub_fetch(&element->refs, 1, __ATOMIC_ACQ_REL) > 0)) {
        return;
    }

    if (element->on_gpu != NULL) {
        element->on_gpu_free(element->on_gpu);
    }
    ucx_mp_mpi_layout_free(&element->layout);
    free(element);
}

static int element_forget(MPI_Datatype datatype, int keyval, void *value,
                          void *state)
{
    ucx_mp_mpi_limit_t *limit = ucx_mp_mpi_limit_entry(datatype);

    if (__atomic_load_n(&limit->datatype, __ATOMIC_RELAXED) == datatype) {
        __atomic_store_n(&limit->datatype, (MPI_Datatype)0, __ATOMIC_RELAXED);
    }
    ucx_mp_mpi_layout_release(value);
    return MPI_SUCCESS;
}

static int element_copy_not(MPI_Datatype datatype, int keyval, void *state,
                            void *value, void *copy, int *flag)
{
    *flag = 0;
    return MPI_SUCCESS;
}

/* Create the element of a datatype with bytes and attach it to the datatype;
   the caller holds the lock */
static int element_make(ucx_mp_mpi_element_t **element_p,
                        MPI_Datatype datatype,
                        const ucx_mp_mpi_type_sizes_t *sizes)
{
    ucx_mp_mpi_element_t *element = calloc(1, sizeof(*element));
    size_t i;
    int rc;

    if (element == NULL) {
        return UCX_MP_MPI_LAYOUT_NO_MEMORY;
    }

    element->refs      = 1;
    element->low       = sizes->begin;
    element->high      = sizes->begin + sizes->length;
    element->extent    = sizes->extent;
    element->is_uneven = ucx_mp_mpi_pmpi.cuts_poorly &&
                         (ucx_mp_mpi_layout_grain(datatype) == 0);

    rc = ucx_mp_mpi_layout_element(&element->layout, datatype, sizes);
    for (i = 0; i < element->layout.count; ++i) {
        element->pieces += element->layout.rows[i].count;
    }
    if (rc == MPI_SUCCESS) {
        rc = ucx_mp_mpi_pmpi.Type_set_attr(datatype, cache.keyval, element);
    }
    if (rc != MPI_SUCCESS) {
        ucx_mp_mpi_layout_release(element);
        return rc;
    }

    *element_p = element;
    return MPI_SUCCESS;
}

/* Get the attached element, or create it. @return As of
   ucx_mp_mpi_layout_hold(). */
static int element_get(ucx_mp_mpi_element_t **element_p, MPI_Datatype datatype,
                       const ucx_mp_mpi_type_sizes_t *sizes)
{
    int rc = MPI_SUCCESS;
    int found;

    pthread_mutex_lock(&cache.lock);
    if (!cache.has_keyval) {
        rc = ucx_mp_mpi_pmpi.Type_create_keyval(element_copy_not,
                                                element_forget, &cache.keyval,
                                                NULL);
        __atomic_store_n(&cache.has_keyval, rc == MPI_SUCCESS,
                         __ATOMIC_RELEASE);
    }
    if (rc == MPI_SUCCESS) {
        rc = ucx_mp_mpi_pmpi.Type_get_attr(datatype, cache.keyval, element_p,
                                           &found);
    }
    if ((rc == MPI_SUCCESS) && !found) {
        rc = element_make(element_p, datatype, sizes);
    }
    if (rc == MPI_SUCCESS) {
        __atomic_add_fetch(&(*element_p)->refs, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&cache.lock);
    return rc;
}

int ucx_mp_mpi_layout_detach(MPI_Datatype datatype)
{
    void *element;
    int rc, found;

    if ((datatype == ucx_mp_mpi_pmpi.datatype_null) ||
        !__atomic_load_n(&cache.has_keyval, __ATOMIC_ACQUIRE)) {
        return MPI_SUCCESS;
    }

    rc = ucx_mp_mpi_pmpi.Type_get_attr(datatype, cache.keyval, &element,
                                       &found);
    return ((rc == MPI_SUCCESS) && found) ?
                   ucx_mp_mpi_pmpi.Type_delete_attr(datatype, cache.keyval) :
                   rc;
}

int ucx_mp_mpi_layout_hold(MPI_Datatype datatype,
                           ucx_mp_mpi_element_t **element_p)
{
    ucx_mp_mpi_type_sizes_t sizes;
    int rc;

    *element_p = NULL;
    rc         = ucx_mp_mpi_layout_type_sizes(datatype, &sizes);
    return ((rc != MPI_SUCCESS) || (sizes.size == 0)) ?
                   rc :
                   element_get(element_p, datatype, &sizes);
}

int ucx_mp_mpi_layout_add(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                          MPI_Count count, MPI_Datatype datatype,
                          bool is_exact)
{
    ucx_mp_mpi_element_t *element = NULL;
    ucx_mp_mpi_strided_t row = {0};
    ucx_mp_mpi_layout_t one  = {.rows = &row, .count = 1};
    ucx_mp_mpi_type_sizes_t sizes;
    bool is_named;
    int rc;

    rc = ucx_mp_mpi_layout_type_sizes(datatype, &sizes);
    if ((rc != MPI_SUCCESS) || (sizes.size == 0)) {
        return rc;
    }

    is_named = (sizes.size == sizes.length) &&
               ucx_mp_mpi_layout_is_named(datatype);
    if ((sizes.size == sizes.length) && (is_named || !is_exact)) {
        one.size = sizes.size;
        row      = (ucx_mp_mpi_strided_t){sizes.begin, one.size, one.size, 1,
                                          0, one.size, !is_named};
    } else {
        rc = element_get(&element, datatype, &sizes);
    }

    if (rc == MPI_SUCCESS) {
        rc = ucx_mp_mpi_layout_add_elements(layout, offset, count,
                                            sizes.extent,
                                            (element == NULL) ?
                                                    &one :
                                                    &element->layout);
    }
    ucx_mp_mpi_layout_release(element);
    return rc;
}

bool ucx_mp_mpi_layout_is_native(MPI_File file)
{
    char representation[MPI_MAX_DATAREP_STRING] = "";
    MPI_Datatype etype, filetype;
    MPI_Offset offset;

    if (ucx_mp_mpi_pmpi.File_get_view(file, &offset, &etype, &filetype,
                                      representation) != MPI_SUCCESS) {
        return false;
    }

    ucx_mp_mpi_layout_free_type(&etype);
    ucx_mp_mpi_layout_free_type(&filetype);
    return strcmp(representation, "native") == 0;
}
