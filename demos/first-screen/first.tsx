import { FirstScreen, type FirstScreenProps } from '../../src/ui/page/first-screen.tsx'
import { DemoCards } from './demo-cards.tsx'
import { FirstPicture } from './first-picture.tsx'

/** The first screen with its picture and the demos. */
export const First = (props: Omit<FirstScreenProps, 'picture' | 'cards'>) => (
  <FirstScreen {...props} picture={<FirstPicture />} cards={<DemoCards />} />
)
