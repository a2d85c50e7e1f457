import { messageOf, TabringError } from '../../src/util/errors.ts'

/** Packages that the launcher needs and the library does not: the project installs them. */
const tools = { vite: 'vite', playwright: 'playwright' } as const

/**
 * Loads a tool of the project.
 *
 * errors: `config.invalid` when it is not installed, with the command that installs it.
 */
export async function importTool<Module>(name: keyof typeof tools): Promise<Module> {
  try {
    return (await import(/* @vite-ignore */ tools[name])) as Module
  } catch (thrown) {
    const isMissing = (thrown as NodeJS.ErrnoException).code === 'ERR_MODULE_NOT_FOUND'
    throw new TabringError(
      'config.invalid',
      isMissing
        ? `launcher: the package ${name} is not installed. Run: npm install --save-dev ${name}`
        : `launcher: the package ${name} does not load: ${messageOf(thrown)}. Install it again.`,
      { cause: thrown },
    )
  }
}
