import { expect, test } from 'vitest'
import { freePort } from '../../support/free-port.ts'
import { button, invite, see, seeMembers } from '../../support/page-driver.ts'
import { driveRooms } from '../../support/page-rooms.ts'
import { startNode } from '../../support/program-process.ts'
import { repository } from '../../support/repository.ts'

const { openTab, openContext } = driveRooms()

test('with --ask the host lets a tab in, which trains and may reload, and declines another', async () => {
  const port = await freePort()
  const args = ['--import', 'tsx', 'node/start.ts', '--ask', '--port', `${port}`]
  const server = startNode(repository, args)
  try {
    await expect.poll(() => server.received.stdout, { timeout: 60_000 }).toContain(`:${port}`)
    const url = `http://localhost:${port}/?demo=playground&steps=40`
    const host = await openTab(await openContext(), url)
    await see(host, 'Alone in the room')
    const link = await invite(host)
    const guest = await openTab(await openContext(), link)
    await see(guest, 'Waiting to be let in')
    await button(host, 'Let in').click()
    await seeMembers(host, 2)
    await guest.reload()
    await seeMembers(guest, 2)
    const [third, fourth] = await Promise.all(
      [1, 2].map(async () => openTab(await openContext(), link)),
    )
    await host.getByText('2 wait.').waitFor()
    await button(host, 'Let all in').click()
    await seeMembers(host, 4)
    await third.close()
    await fourth.close()
    await seeMembers(host, 2)
    const stranger = await openTab(await openContext(), link)
    await see(stranger, 'Waiting to be let in')
    await button(host, 'Decline').click()
    await stranger.getByText('The host did not let this tab in').waitFor()
    await stranger.getByText('It may ask again in 5 s').first().waitFor()
    expect(await button(host, 'Decline').count()).toBe(0)
    await button(host, 'Start').click()
    await Promise.all([host, guest].map((page) => see(page, 'Finished', 120_000)))
  } finally {
    server.child.kill('SIGTERM')
    await server.ended
  }
}, 200_000)
