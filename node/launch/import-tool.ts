import { messageOf, TabringError } from '../../src/util/errors.ts'

/** Packages that the launcher needs and the library does not: the project installs them. */
const tools = { vite: 'vite', playwright: 'playwright' } as const

type Load = (name: string) => Promise<unknown>

const load: Load = (name) => import(/* @vite-ignore */ name)

const isMissing = (thrown: unknown): boolean =>
  (thrown as NodeJS.ErrnoException).code === 'ERR_MODULE_NOT_FOUND'

/** errors: `config.invalid` where tools are not installed, with all that are missing and the command that installs them. */
export async function requireTools(
  names: readonly (keyof typeof tools)[],
  from: Load = load,
): Promise<void> {
  const isThere = (name: string) =>
    from(name).then(
      () => true,
      (thrown) => !isMissing(thrown),
    )
  const found = await Promise.all(names.map(isThere))
  const missing = names.filter((_, n) => !found[n]) as string[]
  if (missing.length === 0) return
  const hasCore = missing.includes('playwright') && (await isThere('playwright-core'))
  const listed =
    missing.length === 1 ? `package ${missing[0]} is` : `packages ${missing.join(' and ')} are`
  const core = hasCore ? ' playwright-core is installed, but playwright itself is needed.' : ''
  throw new TabringError(
    'config.invalid',
    `launcher: the ${listed} not installed.${core} Run: npm install --save-dev ${missing.join(' ')}`,
  )
}

/**
 * Loads a tool of the project.
 *
 * errors: `config.invalid` when it is not installed, with the command that installs it.
 */
export async function importTool<Module>(name: keyof typeof tools): Promise<Module> {
  try {
    return (await load(tools[name])) as Module
  } catch (thrown) {
    throw new TabringError(
      'config.invalid',
      isMissing(thrown)
        ? `launcher: the package ${name} is not installed. Run: npm install --save-dev ${name}`
        : `launcher: the package ${name} does not load: ${messageOf(thrown)}. Install it again.`,
      { cause: thrown },
    )
  }
}
