// SPDX-License-Identifier: BSD-3-Clause
// A cache in Rust, over the C interface: a registrar of the program's own, and leases that release themselves. The
// bindings are bindgen's, made from pinfold.h; examples/CMakeLists.txt has the commands.
#![allow(non_camel_case_types, non_upper_case_globals, dead_code)]
mod bindings {
    include!(env!("PINFOLD_BINDINGS"));
}
use bindings::*;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::os::raw::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The device: it only counts.
#[derive(Default)]
struct Device {
    opens: AtomicUsize,
    closes: AtomicUsize,
}

// The cache calls these on any thread. A panic must not leave them, so they have none.
unsafe extern "C" fn open(
    device: *mut c_void,
    what: *const pinfold_open_request,
    made: *mut pinfold_registration,
    _failure: *mut pinfold_error,
) -> c_int {
    let device = &*(device as *const Device);
    (*made).words[0] = device.opens.fetch_add(1, Ordering::Relaxed) as u64;
    (*made).words[1] = (*what).bytes as u64;
    PINFOLD_OK as c_int
}

unsafe extern "C" fn close(
    device: *mut c_void,
    _made: *const pinfold_registration,
    _failure: *mut pinfold_error,
) -> c_int {
    (*(device as *const Device)).closes.fetch_add(1, Ordering::Relaxed);
    PINFOLD_OK as c_int
}

fn last_error() -> String {
    let mut text = [0u8; 256];
    unsafe {
        pinfold_describe_error(pinfold_last_error(), text.as_mut_ptr().cast(), text.len());
        CStr::from_ptr(text.as_ptr().cast()).to_string_lossy().into_owned()
    }
}

/// Owns the cache, which must not outlive its device.
struct Cache<'device> {
    cache: *mut pinfold_cache,
    device: PhantomData<&'device Device>,
}
// The library takes calls on any thread.
unsafe impl Sync for Cache<'_> {}

impl<'device> Cache<'device> {
    fn new(device: &'device Device) -> Result<Self, String> {
        let mut table: pinfold_registrar = unsafe { std::mem::zeroed() };
        table.size = std::mem::size_of::<pinfold_registrar>();
        table.name = b"counting\0".as_ptr().cast();
        table.open = Some(open);
        table.close = Some(close);
        let mut cache = std::ptr::null_mut();
        let own = device as *const Device as *mut c_void;
        match unsafe { pinfold_create(&table, own, std::ptr::null(), &mut cache) } {
            PINFOLD_OK => Ok(Cache {
                cache,
                device: PhantomData,
            }),
            _ => Err(last_error()),
        }
    }

    /// The lease keeps the memory borrowed: it cannot be freed while a device may use it.
    fn acquire<'memory>(&'memory self, memory: &'memory mut [u8]) -> Result<Lease<'memory>, String> {
        let access = PINFOLD_LOCAL_READ | PINFOLD_LOCAL_WRITE;
        let lease = unsafe { pinfold_acquire(self.cache, memory.as_ptr().cast(), memory.len(), access) };
        match lease.pin {
            0 => Err(last_error()),
            _ => Ok(Lease {
                lease,
                memory: PhantomData,
            }),
        }
    }
}

impl Drop for Cache<'_> {
    fn drop(&mut self) {
        if unsafe { pinfold_destroy(self.cache) } != PINFOLD_OK {
            eprintln!("pinfold_destroy: {}", last_error());
        }
    }
}

struct Lease<'memory> {
    lease: pinfold_lease,
    memory: PhantomData<&'memory mut [u8]>,
}

impl Lease<'_> {
    fn registration(&self) -> pinfold_registration {
        unsafe { *pinfold_registration_of(self.lease).cast::<pinfold_registration>() }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        unsafe { pinfold_release(self.lease) };
    }
}

fn main() -> Result<(), String> {
    let device = Device::default();
    {
        let cache = Cache::new(&device)?;
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    let mut buffer = vec![0u8; 1 << 20];
                    for _ in 0..1000 {
                        let lease = cache.acquire(&mut buffer).expect("a lease");
                        assert!(lease.registration().words[1] >= 1 << 20);
                    }
                });
            }
        });
    }
    let (opens, closes) = (device.opens.into_inner(), device.closes.into_inner());
    println!("4 threads acquired 4000 leases; the device registered {opens} buffers and gave back {closes}");
    assert!(opens == closes && opens < 100);
    Ok(())
}
