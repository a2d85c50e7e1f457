import { existsSync } from 'node:fs'
import { join } from 'node:path'

/** Where this launcher's own browser code is: beside it in the package, in `src` in the repository. */
const here = import.meta.dirname
const repository = join(here, '..', '..')
const isRepository = existsSync(join(repository, 'src', 'rank.ts'))

/** The module that runs a rank's program in its page. */
export const rankPage = isRepository ? join(repository, 'src', 'rank.ts') : join(here, 'rank.js')

/** The module that makes the console of a page or worker print as Node's does. */
export const rankConsole = isRepository
  ? join(repository, 'src', 'rank-console.ts')
  : join(here, 'console.js')

/** The folder of the library's entry points, for a project that has not installed the package. */
export const library = isRepository ? join(repository, 'src', 'entries') : join(here, '..')

/** Returns the entry point in `folder` that a program imports by `name`, `tabring` or `tabring/nn`; undefined for another name. */
export function entryPoint(name: string, folder: string): string | undefined {
  if (!/^tabring(?:\/|$)/.test(name)) return undefined
  const path = join(
    folder,
    `${name.slice('tabring/'.length) || 'index'}${isRepository ? '.ts' : '.js'}`,
  )
  return existsSync(path) ? path : undefined
}

const types = isRepository ? library : join(here, '..', 'types', 'entries')
const suffix = isRepository ? '.ts' : '.d.ts'

/** Where TypeScript finds the types of `library`: its option `paths`. */
export const libraryPaths = {
  tabring: [join(types, `index${suffix}`)],
  'tabring/*': [join(types, `*${suffix}`)],
}
