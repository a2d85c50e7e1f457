import { readdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { expect, test } from 'vitest'
import { continuedWithout, reaches, says } from '../../support/elastic-tabs.ts'
import { seeText, statusText, textIn, useFirefox } from '../../support/firefox-pages.ts'
import { family, start, useLauncherFolder, write } from '../../support/launcher-folder.ts'
import { says as prints } from '../../support/launcher-process.ts'
import { button, hashOf, invite, see, seeMembers } from '../../support/page-driver.ts'
import { driveRooms } from '../../support/page-rooms.ts'

// Firefox on lavapipe, beside Chromium on SwiftShader.

const { openRoom, served } = driveRooms()
const openInFirefox = useFirefox()
useLauncherFolder()

test('exact in a mixed room', async () => {
  const [maker] = await openRoom(1, '?transport=webrtc&steps=12&exact=true')
  const guest = await openInFirefox(await invite(maker))
  await seeMembers(maker, 2)
  await button(maker, 'Start').click()
  await see(maker, 'Finished', 120_000)
  await seeText(guest, statusText, /Finished/)
  console.log(await maker.locator('body').innerText())
  console.log(await textIn(guest, 'main'))
}, 300_000)
