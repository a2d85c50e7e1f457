import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Plugin } from 'vite'

// Bundled packages are passed on with the library, and their licences ask for their notices to go with them.

export const noticesFile = 'THIRD-PARTY-NOTICES'

/** The package that a bundled module belongs to; undefined for our own. */
export function packageOf(moduleId: string): string | undefined {
  const inside = moduleId.split('node_modules/').at(-1)!
  return inside === moduleId ? undefined : /^(?:@[^/]+\/)?[^/]+/.exec(inside)?.[0]
}

/** A package's name, version, licence and the text of its licence. errors: Error where it has no such file. */
function noticeOf(name: string, root: string): string {
  const folder = join(root, 'node_modules', name)
  const { version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  const file = readdirSync(folder).find((entry) => /^licen[cs]e(\.(md|txt))?$/i.test(entry))
  if (!file) throw new Error(`third-party notices: expected a licence file in ${folder}, got none.`)
  const text = readFileSync(join(folder, file), 'utf8').trim()
  return `${name} ${version} (${license})\n\n${text}\n`
}

/** The text of the notices file, packages by name. */
export const noticesOf = (packages: Iterable<string>, root: string): string =>
  [
    'The files beside this one hold code of these packages.\n',
    ...[...new Set(packages)].sort().map((name) => noticeOf(name, root)),
  ].join(`\n${'-'.repeat(80)}\n\n`)

/** Collects the packages of what is bundled, workers included, and writes their notices beside the bundle. */
export function thirdPartyNotices(root: string): { bundle: Plugin; worker: () => Plugin } {
  const packages = new Set<string>()
  const collect = (name: string): Plugin => ({
    name,
    generateBundle(_options, files) {
      for (const file of Object.values(files)) {
        const modules = file.type === 'chunk' ? Object.entries(file.modules) : []
        for (const [id, { renderedLength }] of modules) {
          const found = renderedLength > 0 ? packageOf(id) : undefined
          if (found) packages.add(found)
        }
      }
    },
  })
  return {
    worker: () => collect('third-party-in-workers'),
    bundle: {
      ...collect('third-party-notices'),
      // Workers are bundled while the chunks that start them are, before this.
      writeBundle: {
        order: 'post',
        sequential: true,
        handler({ dir }) {
          writeFileSync(join(dir!, noticesFile), noticesOf(packages, root))
        },
      },
    },
  }
}
