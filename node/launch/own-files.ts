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

/** What `import 'tabring'` means where the user's project has not installed it. */
export const library = isRepository
  ? join(repository, 'src', 'index.ts')
  : join(here, '..', 'index.js')

/** The types of `library`. */
export const libraryTypes = isRepository ? library : join(here, '..', 'types', 'index.d.ts')
