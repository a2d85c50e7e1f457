import type { Parameter } from '../graph/trace/parameter.ts'
import { formatShape } from '../util/shape.ts'

/** Of contents that do not change between two updates. */
const known = new WeakMap<Parameter, { readonly version: string; readonly hex: string }>()

const hexOf = async (bytes: Uint8Array<ArrayBuffer>): Promise<string> =>
  [...new Uint8Array(await crypto.subtle.digest('SHA-256', bytes))]
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('')

async function digestOf(parameter: Parameter): Promise<string> {
  const version = `${parameter.revision} ${parameter.updates.begun}`
  const own = known.get(parameter)
  if (own?.version === version) return own.hex
  const { buffer, byteOffset, byteLength } = await parameter.wholeOf(await parameter.read())
  const hex = await hexOf(new Uint8Array(buffer, byteOffset, byteLength))
  known.set(parameter, { version, hex })
  return hex
}

/**
 * SHA-256, in hexadecimal, of keys, shapes and contents of parameters: of the lines `key shape SHA-256-of-the-floats`. Where ranks hold parts of
 * them, all call it, and it is that of the whole.
 *
 * cost: reads what it has not seen since the contents changed.
 */
export async function digestOfAll(
  named: Iterable<readonly [key: string, parameter: Parameter]>,
): Promise<string> {
  const lines: string[] = []
  for (const [key, parameter] of named)
    lines.push(`${key} ${formatShape(parameter.stateShape)} ${await digestOf(parameter)}\n`)
  return hexOf(new TextEncoder().encode(lines.join('')))
}
