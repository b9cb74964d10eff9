#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    forebay_decoders::bodies(data);
});
