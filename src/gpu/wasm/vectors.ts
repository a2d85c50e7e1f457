/** A module with one vector instruction. */
const vectorModule = Uint8Array.of(
  ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
  ...[1, 5, 1, 0x60, 0, 1, 0x7b, 3, 2, 1, 0],
  ...[10, 10, 1, 8, 0, 0x41, 0, 0xfd, 0x0f, 0xfd, 0x62, 0x0b],
)

/** Compiles a vector instruction. errors: what the engine throws where it has none, or the page forbids WebAssembly. */
export const proveVectors = async (): Promise<void> => {
  await WebAssembly.compile(vectorModule)
}
