import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'vitest'

/** Names the folder that holds real data for tests, `mnist-9k` among it. */
export const dataVariable = 'TABRING_DATA'

/**
 * Declares a test on real data: `run` gets the path of `item` inside the folder that `TABRING_DATA` names.
 *
 * Without the variable the test is listed as skipped and a line says plainly that it did not run.
 * With the variable set, an item that is not there is a failure.
 */
export function testOnRealData(
  name: string,
  item: string,
  run: (path: string) => Promise<void> | void,
  timeoutMs?: number,
): void {
  const folder = process.env[dataVariable]
  if (!folder) {
    console.log(`DID NOT RUN: "${name}" needs real data; set ${dataVariable} to its folder.`)
    test.skip(`${name} (did not run: ${dataVariable} is not set)`)
    return
  }
  test(
    name,
    async () => {
      const path = join(resolve(folder), item)
      if (!existsSync(path))
        throw new Error(
          `${dataVariable}: expected ${path}, which does not exist. Name the folder that holds ${item}.`,
        )
      await run(path)
    },
    timeoutMs,
  )
}
