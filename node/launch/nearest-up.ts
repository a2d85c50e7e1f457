import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** The path of `name` in `folder` or in the nearest folder above that has it. */
export function nearestUp(folder: string, name: string): string | null {
  for (let at = folder; ; at = dirname(at)) {
    if (existsSync(join(at, name))) return join(at, name)
    if (at === dirname(at)) return null
  }
}
