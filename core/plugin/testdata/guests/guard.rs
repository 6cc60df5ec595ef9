// The hook guard in Rust, without std or a crate: it denies calls of danger and
// renames those of old.
#![no_std]
#![no_main]

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    core::arch::wasm32::unreachable()
}

#[link(wasm_import_module = "penstock_v1")]
extern "C" {
    fn field_read(pointer: *const u8, n: u32, to: *mut u8, room: u32) -> i32;
    fn output_write(from: *const u8, n: u32);
    fn error_write(from: *const u8, n: u32);
}

#[no_mangle]
pub extern "C" fn penstock_v1() -> i32 {
    0
}

#[no_mangle]
pub extern "C" fn hook_apply() -> i32 {
    let mut room = [0u8; 256];
    let path = "/tool_call/name";
    let n = unsafe { field_read(path.as_ptr(), path.len() as u32, room.as_mut_ptr(), room.len() as u32) };
    if n < 0 || n as usize > room.len() {
        let why = "the event has no tool call";
        unsafe { error_write(why.as_ptr(), why.len() as u32) };
        return 1;
    }
    let reply = match &room[..n as usize] {
        b"danger" => "{\"action\":\"deny\",\"reason\":\"danger is not a toy\"}",
        b"old" => "{\"action\":\"replace\",\"value\":{\"id\":\"c1\",\"name\":\"new\",\"arguments\":{}}}",
        _ => "{\"action\":\"continue\"}",
    };
    unsafe { output_write(reply.as_ptr(), reply.len() as u32) };
    0
}
