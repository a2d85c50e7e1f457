import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import type { AxeResults, RunOptions } from 'axe-core'
import type { Page } from 'playwright'

declare global {
  interface Window {
    axe: { run(root: Document, options: RunOptions): Promise<AxeResults> }
  }
}

export const axePath = createRequire(import.meta.url).resolve('axe-core/axe.min.js')

/** Returns what axe finds on the page as it is: rule, what it asks for, and where, of each violation. */
export async function violations(page: Page): Promise<string[]> {
  // Not as a script of the page, whose policy allows none but its own.
  if (!(await page.evaluate(() => 'axe' in window)))
    await page.evaluate(await readFile(axePath, 'utf8'))
  return page.evaluate(async () => {
    const { violations } = await window.axe.run(document, {
      resultTypes: ['violations'],
      elementRef: false,
    })
    return violations.flatMap(({ id, help, nodes }) =>
      nodes.map(({ target, failureSummary }) => `${id}: ${help}: ${target} ${failureSummary}`),
    )
  })
}

/** Returns what axe finds on the page in light and in dark colours, by those; light again afterwards. */
export async function violationsByColours(page: Page): Promise<Record<string, string[]>> {
  const found: Record<string, string[]> = {}
  for (const colorScheme of ['dark', 'light'] as const) {
    await page.emulateMedia({ colorScheme })
    found[colorScheme] = await violations(page)
  }
  return found
}

export const noViolations = { dark: [], light: [] }
