import { existsSync, readFileSync, realpathSync } from 'node:fs'
import { SourceMap } from 'node:module'
import { dirname, join, relative, resolve, sep } from 'node:path'

/** A text may look like an address and be none. */
function fileOf(root: string, path: string): string {
  try {
    return join(root, decodeURIComponent(path))
  } catch {
    return join(root, path)
  }
}

/** `http://localhost:29500/assets/train-x.js:10:5`, in a stack or in another text. */
const place =
  /https?:\/\/[^\s/()]+(?<path>\/[^\s():?#]*)(?:\?[^\s():]*)?:(?<line>\d+):(?<column>\d+)/g

/**
 * Returns a translator of texts of the pages under `root`: places in built files become places in their sources, relative to `folder`.
 *
 * Frames of the rank's own page are left out of stacks: they are the launcher's.
 */
export function sourceLines(root: string, folder: string): (text: string) => string {
  const maps = new Map<string, SourceMap | null>()
  const mapOf = (file: string): SourceMap | null => {
    const known = maps.get(file)
    if (known !== undefined) return known
    let map: SourceMap | null = null
    try {
      map = new SourceMap(JSON.parse(readFileSync(`${file}.map`, 'utf8')))
    } catch {
      // A file without a map keeps its own places.
    }
    maps.set(file, map)
    return map
  }
  const sourceOf = (text: string, path: string, line: string, column: string): string => {
    const file = fileOf(root, path)
    const entry = mapOf(file)?.findEntry(Number(line) - 1, Number(column) - 1)
    if (!entry || !('originalSource' in entry)) return text
    const built = resolve(dirname(file), entry.originalSource)
    // The folder may have been linked for the build.
    const source = existsSync(built) ? realpathSync(built) : built
    const near = relative(folder, source)
    const name = near.startsWith(`..${sep}..`) ? source : near
    return `${name}:${entry.originalLine + 1}:${entry.originalColumn + 1}`
  }
  return (text) =>
    text
      .split('\n')
      .filter((line) => !/^\s+at .*\/rank\.js:\d+:\d+\)?$/.test(line))
      .join('\n')
      .replaceAll(place, (found, path: string, line: string, column: string) =>
        sourceOf(found, path, line, column),
      )
}
