/** A module with one vector instruction. */
const vectorModule = Uint8Array.of(
  ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
  ...[1, 5, 1, 0x60, 0, 1, 0x7b, 3, 2, 1, 0],
  ...[10, 10, 1, 8, 0, 0x41, 0, 0xfd, 0x0f, 0xfd, 0x62, 0x0b],
)

/** A module with `f32x4.relaxed_madd`. */
const relaxedModule = Uint8Array.of(
  ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
  ...[1, 8, 1, 0x60, 3, 0x7b, 0x7b, 0x7b, 1, 0x7b, 3, 2, 1, 0],
  ...[10, 13, 1, 11, 0, 0x20, 0, 0x20, 1, 0x20, 2, 0xfd, 0x85, 0x02, 0x0b],
)

/** Whether the engine has `relaxed_madd`: Node has it from version 21, Chromium from 114. */
export const hasRelaxedMadd = (): boolean => WebAssembly.validate(relaxedModule)

/** Compiles a vector instruction. errors: what the engine throws where it has none, or the page forbids WebAssembly. */
export const proveVectors = async (): Promise<void> => {
  await WebAssembly.compile(vectorModule)
}
