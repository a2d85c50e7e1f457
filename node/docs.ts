import { existsSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { Command, CommanderError } from 'commander'
import { clipped } from '../src/util/clipped.ts'
import { messageOf, TabringError } from '../src/util/errors.ts'

/** `tabring docs`: the pages of docs/, which are in the package too. docs/README.md lists them. */

/** A page of the documentation. */
export interface Page {
  /** The base name of its file, by which it is asked for. */
  readonly name: string
  /** Relative to docs/. */
  readonly path: string
  /** Heading of docs/README.md under which it is listed. */
  readonly group: string
  readonly description: string
}

// This file is in node/ in the repository, and in dist-lib/launch/ in the package.
const folder = ['..', '../..']
  .map((up) => join(import.meta.dirname, up, 'docs'))
  .find((path) => existsSync(path))

/** Returns the text of a page, by its path in docs/. errors: `config.invalid` if the package has no docs. */
export function readPage(path: string): string {
  if (folder === undefined) {
    throw new TabringError(
      'config.invalid',
      'docs: this installation has no docs folder. Install the package again.',
    )
  }
  return readFileSync(join(folder, path), 'utf8')
}

/** Returns the pages that docs/README.md lists, in its order. */
export function listPages(): Page[] {
  let group = ''
  const pages: Page[] = []
  for (const line of readPage('README.md').split('\n')) {
    group = /^## (.+)/.exec(line)?.[1] ?? group
    const [, path, text] = /^- \[.+?\]\((.+?)\): (.+)/.exec(line) ?? []
    if (!path) continue
    const description = text.replaceAll('`', '')
    pages.push({ name: basename(path, '.md'), path, group, description })
  }
  return pages
}

/**
 * Returns what `tabring docs` prints: the list of pages, or the page that the argument names.
 *
 * errors: `config.invalid` for an unknown page, with the nearest name.
 */
export function docsText(argv: readonly string[]): string {
  let text = ''
  const command = new Command('tabring docs')
    .usage('[page]')
    .description('Prints a page of the documentation.')
    .helpOption('-h, --help', 'show this list')
    .helpCommand(false)
    .addHelpText('after', '\nExample:\n  tabring docs get-started\n')
    .exitOverride()
    .configureOutput({
      writeOut: (part) => {
        text += part
      },
      writeErr: () => undefined,
    })
  for (const { name, path, group, description } of listPages()) {
    command
      .command(name)
      .description(description)
      .helpGroup(`${group}:`)
      .helpOption(false)
      .action(() => {
        text = readPage(path).replace(/^<!--.*?-->\s*/s, '')
      })
  }
  const names = argv.map((argument) => (/^-/.test(argument) ? argument : basename(argument, '.md')))
  try {
    command.parse(names.length > 0 ? names : ['--help'], { from: 'user' })
  } catch (thrown) {
    if (thrown instanceof CommanderError && /^commander\.help/.test(thrown.code)) return text
    const near = /\(Did you mean (.+)\?\)/.exec(messageOf(thrown))?.[1]
    const [page] = names
    throw new TabringError(
      'config.invalid',
      names.length > 1
        ? `docs: one page at a time, got ${names.length}: ${clipped(names.join(', '))}.`
        : `docs: there is no page "${clipped(page)}".${near ? ` Did you mean ${near}?` : ''} "tabring docs" lists all pages.`,
      { cause: thrown },
    )
  }
  return text
}
