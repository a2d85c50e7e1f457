import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/**
 * Rewrites the package's types for TypeScript 5.6, whose arrays have no type parameter: `Float32Array<ArrayBuffer>` is in each
 * version what `Float32Array.of` returns.
 */

const folder = join(import.meta.dirname, '..', 'dist-lib')
for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
  if (!name.endsWith('.d.ts')) continue
  const path = join(folder, name)
  const text = readFileSync(path, 'utf8')
  const rewritten = text
    .replaceAll(
      /\b((?:Big)?(?:Int|Uint|Float)\w*Array)<ArrayBuffer>/g,
      "ReturnType<$1Constructor['of']>",
    )
    .replaceAll('ArrayBufferView<ArrayBuffer>', 'ArrayBufferView & { buffer: ArrayBuffer }')
  if (rewritten !== text) writeFileSync(path, rewritten)
}
