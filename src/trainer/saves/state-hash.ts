import { formatHash, hashWords } from '../../kernels/hash/hash-words.ts'

/** As it was kept, saved or loaded. */
interface State {
  readonly model?: unknown
  readonly optimizer?: unknown
  readonly scaler?: unknown
}

/** 64 bits, of all tensors and numbers of a state, whichever order its keys are in. */
export function hashOfState({ model, optimizer, scaler }: State): string {
  const words: number[] = []
  const rest = JSON.stringify({ model, optimizer, scaler }, (_, value: unknown) => {
    if (ArrayBuffer.isView(value)) {
      const { buffer, byteOffset, byteLength } = value
      words.push(...hashWords(new Uint32Array(buffer, byteOffset, byteLength / 4)))
      return byteLength
    }
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
    return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
  })
  const text = Uint32Array.from(rest, (character) => character.charCodeAt(0))
  return formatHash(hashWords(Uint32Array.of(...words, ...hashWords(text))))
}
