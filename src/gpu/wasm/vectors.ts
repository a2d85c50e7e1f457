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

/** Why this page, worker or process can compile no vector instruction. */
export interface NoVectors {
  /** A content security policy of the page; else the engine has none. */
  readonly isForbidden: boolean
  readonly cause: unknown
}

/** Compiles a vector instruction. Returns why that failed; undefined where it did not. */
export async function missingVectors(): Promise<NoVectors | undefined> {
  try {
    await WebAssembly.compile(vectorModule)
    return undefined
  } catch (cause) {
    // Policies forbid to compile, not to look.
    return { isForbidden: globalThis.WebAssembly?.validate(vectorModule) ?? false, cause }
  }
}
