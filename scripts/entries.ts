import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { repository } from '../tests/support/repository.ts'

const folder = 'src/entries'

/** An entry point of the library. */
export interface Entry {
  /** What programs import: `tabring/nn`. */
  readonly specifier: string
  /** Its file, in the repository. */
  readonly file: string
}

/** The library's entry points: a file of src/entries each. `tabring` is first, the others in the order of their names. */
export const entries: readonly Entry[] = readdirSync(join(repository, folder), {
  recursive: true,
  encoding: 'utf8',
})
  .filter((name) => name.endsWith('.ts'))
  .map((name) => name.replaceAll('\\', '/'))
  .map((name) => ({
    specifier: name === 'index.ts' ? 'tabring' : `tabring/${name.slice(0, -'.ts'.length)}`,
    file: `${folder}/${name}`,
  }))
  .sort((a, b) => (a.specifier < b.specifier ? -1 : 1))
